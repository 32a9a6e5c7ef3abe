// C (M, N) = A (M, K) B (K, N), every row as if it were alone: its bits depend neither on M nor on the number of threads.
#pragma once

namespace ernie {

// B is stored as its transpose if `transposed`; `stride` elements lead from row to row.  `bias` (N,) may be null.  With
// `add`, C is added to, and there is no bias.
void row_product(long M, long N, long K, const float* A, long lda, const float* B, long ldb, bool transposed, const float* bias, float* C,
                 long ldc, bool add);

}  // namespace ernie
