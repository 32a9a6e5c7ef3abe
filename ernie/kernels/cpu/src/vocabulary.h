// Cross entropy over a vocabulary.
#pragma once
#include "vec.h"

namespace ernie {

// The loss (P,) of each row of logits (P, V) for its label and, unless `grad` is null, the gradient of their sum.
// Unless `draws` is null, a class of each row is drawn from its softmax, as the number from 0 to 1 in `draws` decides.
template <class E>
void softmax_cross_entropy(const float* logits_PV, const int64_t* labels_P, const double* draws_P, long P, long V,
                           float* loss_P, E* grad_PV, int64_t* drawn_P);
// x *= factor.
template <class E>
void scale(E* x, long count, float factor);

}  // namespace ernie
