// C (M, N) = A (M, K) B (K, N) with all threads: the products with weights.  By oneDNN on AVX-512, else by blocked_product.
#pragma once
#include "vec.h"

namespace ernie {

enum class Type { f32 = 3, bf16 = 2 };
template <class E>
constexpr Type type_of = sizeof(E) == 2 ? Type::bf16 : Type::f32;

// A matrix in memory: `stride` elements from row to row; `transposed` if it holds the transpose.
struct Matrix {
    const void* data;
    long stride;
    bool transposed = false;
};

// C = A B, or C += A B with `add`; `bias` (N,) may be null.  A and B are of type `in`, C of type `out`.
//
// oneDNN chooses by M how it sums.  With `alone`, a row of C does not depend on how many others there are: floats are
// multiplied by row_product, and bfloat16 in blocks of ALONE rows, of which M must be a multiple.
constexpr long ALONE = 16;
void product(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add,
             bool alone = false);

}  // namespace ernie
