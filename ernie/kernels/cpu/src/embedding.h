// Sums of rows of embedding tables.
#pragma once
#include "vec.h"

namespace ernie {

// z (T, D) = the sum over tables of table[ids[t]].
void gather_sum(int tables, const float* const* table, const int64_t* const* ids, long T, long D, float* z_TD);
// Adds each token's gradient to its row of every table, in token order.
void scatter_add(int tables, float* const* table, const int64_t* const* ids, long T, long D, const float* grad_TD);

}  // namespace ernie
