// The optimizer's work on one parameter.
#pragma once
#include "vec.h"

namespace ernie {

struct AdamW {
    float rate, beta1, beta2, epsilon, decay;
    float correction1, correction2;  // 1 / (1 - beta^t)
    float gradient_scale;
};

// One step; `copy`, where not null, gets the new weights in bfloat16.
void adamw(const AdamW&, float* weight, const float* grad, float* moment1, float* moment2, bf16* copy, long count);
// The sum of squares, in double precision.
double squares(const float* x, long count);

}  // namespace ernie
