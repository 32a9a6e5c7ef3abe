// The AdamW update of one parameter, and sums of squares.
#pragma once
#include "vec.h"

namespace ernie {

struct AdamW {
    float rate, beta1, beta2, epsilon, decay;
    float correction1, correction2;  // 1 / (1 - beta^t)
    float gradient_scale;
};

// One step; the new weights are also written to `copy` in bfloat16, unless it is null.
void adamw(const AdamW&, float* weight, const float* grad, float* moment1, float* moment2, bf16* copy, long count);
// The sum of squares, in double precision.
double squares(const float* x, long count);

}  // namespace ernie
