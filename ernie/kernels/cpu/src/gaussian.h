// Attention by a Gaussian over the letters of a text, one query for each text: Battenberg et al. (2020), arXiv 1910.10288.
#pragma once
#include <cstdint>

namespace ernie {

// The tokens of text n are those from offsets[n] to offsets[n + 1] of `middles` (T,) and `values` (T, D).  `attended` (N, D)
// is the mean of its values, weighted by a Gaussian around positions[n] with this precision, and `most` (N,) the token, counted
// from the first of its text, of the largest weight.
void gaussian_attention(long N, const int64_t* offsets, long D, const float* positions, const float* precisions, const float* middles,
                        const float* values, float* attended, int64_t* most);

}  // namespace ernie
