// The AdamW update of one parameter, and sums of squares.
#pragma once
#include "vec.h"

namespace ernie {

struct AdamW {
    float rate, beta1, beta2, epsilon, decay;
    float correction1, correction2;  // 1 / (1 - beta^t)
    float gradient_scale;
};

// What is known of the moments of IDLE_BLOCK consecutive weights.
enum class Moments : uint8_t { unknown, zero, other };
constexpr long IDLE_BLOCK = 256;

// One step; the new weights are also written to `copy` in bfloat16, unless it is null.
//
// A block whose moments and gradients are all zero only decays, which is what the whole step would do, bit for bit: the
// rows of a table of embeddings that no batch has had yet are most of a small encoder.  `moments`, for each block,
// begins as unknown and must be kept until something else changes the moments.  Without it, all blocks take the step.
void adamw(const AdamW&, float* weight, const float* grad, float* moment1, float* moment2, bf16* copy, Moments* moments,
           long count);
// The sum of squares, in double precision.
double squares(const float* x, long count);

}  // namespace ernie
