// A stack of gated dilated convolutions, without what gradients need: van den Oord et al. (2016), arXiv 1609.03499, section 2.
//
// A tile of rows goes through a whole layer while it is in the core's cache.
#pragma once
#include <cstdint>

namespace ernie {

// L `layers` of C `channels`, each of which sees `taps` vectors that are its dilation apart, the oldest first, and H
// `features` of a conditioner; they have K `skips`.  A layer has five `weights`: of the gates (taps C + H, 2 C) and their
// bias, to the output (C, K), to the next layer (C, C) and their bias; the last two are null in the last layer.
struct GatedStack {
    long layers, channels, taps, features, skips;
    const int64_t* dilations;
    const float* const* weights;
};

// The sum of the layers' outputs, (R, K), of the last R of S samples, whose vectors are x (S, C) and conditioner (S, H).
void gated_stack(const GatedStack&, long S, const float* x, const float* conditioner, float* total);

}  // namespace ernie
