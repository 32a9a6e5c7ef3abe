// Low-rank updates of matrices, added to a product for some of its rows (Hu et al., 2021, arXiv 2106.09685, section 4.1).
#pragma once
#include "memory.h"
#include "vec.h"

namespace ernie {

// A (K, rank) times B (rank, N), which is added to a matrix (K, N); without an update both are null.
struct LowRank {
    const float *a, *b;
    long rank;
};

// The rows from `begin` to `end` have updates of their own: those of a layer's matrices (as in LayerWeights), layer by layer.
struct AdaptedRows {
    long begin, end;
    const LowRank* updates;
};

// A matrix (K, N) that is trained as W0 + scale A B, with A (K, rank) and B (rank, N), and the places of their gradients.  Without
// factors `a` is null.
struct Factors {
    const float *a, *b;
    float *a_grad, *b_grad;
    long rank;
    float scale;
};

// y (M, N) += x (M, K) A B; `ldy` elements lead from row to row of y.  The bits of a row do not depend on the other rows.
template <class E>
void add_low_rank(const LowRank&, const E* x, long M, long K, E* y, long ldy, long N, Scratch&);

// The gradients of the factors of a matrix by which x (M, K) is multiplied, where `grad` (M, N) is that of the product:
// dA = scale x^T (grad B^T), dB = scale (x A)^T grad.  For a small rank that is a fraction of the work for the matrix itself.
template <class E>
void factor_gradients(const Factors&, const E* x, long M, long K, const E* grad, long ldg, long N);

// weight (D, E) = pretrained + scale a (D, rank) b (rank, E), and the same in `copy` unless that is null.
void set_from_factors(const float* pretrained, const float* a, const float* b, float* weight, bf16* copy, long D, long E, long rank, float scale);

}  // namespace ernie
