// C (M, N) = A (M, K) B (K, N) in float32 for matrices of any size, by all threads.
//
// A block of TALL rows and DEPTH columns of A stays in the outer cache of a core, and DEPTH rows of a strip of B in the inner one
// (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008).
#pragma once
#include "product.h"

namespace ernie {

// C = A B, or C += A B with `add`; `bias` (N,) may be null, and is null with `add`.  Each sum runs along K in order: its bits
// depend neither on M or N nor on the number of threads.
void blocked_product(long M, long N, long K, Matrix A, Matrix B, const float* bias, float* C, long ldc, bool add);

}  // namespace ernie
