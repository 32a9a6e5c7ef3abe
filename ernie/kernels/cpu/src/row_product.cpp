#include "row_product.h"

#include <algorithm>

#include "blocked_product.h"
#include "sums.h"
#include "threads.h"

namespace ernie {
namespace {

// The columns of a strip of B, which is read in place.
void multiply_strip(long M, long width, long K, const float* A, long lda, const float* B, long ldb, const float* bias, float* C, long ldc,
                    bool add) {
    static thread_local Scratch sums_memory, strip;
    Sums sums(M, width, bias, C, ldc, add, sums_memory);
    if (width < WIDTH) {
        float* const packed = strip.get<float>(K * WIDTH);
        pack(B, ldb, K, width, packed, WIDTH);
        B = packed, ldb = WIDTH;
    }
    small_product(A, lda, M, B, ldb, WIDTH, K, sums.at, sums.stride, true);
    sums.finish();
}

// So few rows that their sums leave registers for V vectors of columns.  Returns how many columns that makes, in whole strips.
template <int M, int V>
long multiply_wide_strips(long N, long K, const float* A, long lda, const float* B, long ldb, const float* bias, float* C, long ldc, bool add,
                          bool is_large) {
    constexpr long WIDE = V * LANES;
#pragma omp parallel for schedule(static) if (is_large)
    for (long n = 0; n < N / WIDE * WIDE; n += WIDE) {
        if (!add)
            for (long m = 0; m < M; m++)
                for (long v = n; v < n + WIDE; v += LANES) store(C + m * ldc + v, bias ? load(bias + v) : zero());
        tile<float, M, V, false>({A, nullptr, lda}, B + n, ldb, C + n, ldc, K, true);
    }
    return N / WIDE * WIDE;
}

// R rows of A times Q rows of B, which lies transposed: the sums of a product run over its lanes first.
template <int R, int Q>
void dots(long K, const float* A, long lda, const float* B, long ldb, const float* bias, float* C, long ldc, bool add) {
    Vec sums[R][Q];
    for (auto& row : sums)
        for (auto& one : row) one = zero();
    const auto more = [&](long k, const auto& read) {
        Vec b[Q];
        for (int q = 0; q < Q; q++) b[q] = read(B + q * ldb + k);
        for (int r = 0; r < R; r++) {
            const Vec a = read(A + r * lda + k);
            for (int q = 0; q < Q; q++) sums[r][q] = fma(a, b[q], sums[r][q]);
        }
    };
    const long whole = K / LANES * LANES;
    for (long k = 0; k < whole; k += LANES) more(k, [](const float* p) { return load(p); });
    if (whole < K) more(whole, [&](const float* p) { return load(p, first(K - whole)); });
    for (int r = 0; r < R; r++)
        for (int q = 0; q < Q; q++) C[r * ldc + q] = sum(sums[r][q]) + (add ? C[r * ldc + q] : bias ? bias[q] : 0.f);
}

constexpr int DOT_ROWS = 2, DOT_COLUMNS = 4;

template <int Q>
void dots_of_columns(long M, long K, const float* A, long lda, const float* B, long ldb, const float* bias, float* C, long ldc, bool add) {
    long m = 0;
    for (; m + DOT_ROWS <= M; m += DOT_ROWS) dots<DOT_ROWS, Q>(K, A + m * lda, lda, B, ldb, bias, C + m * ldc, ldc, add);
    for (; m < M; m++) dots<1, Q>(K, A + m * lda, lda, B, ldb, bias, C + m * ldc, ldc, add);
}

}  // namespace

void row_product(long M, long N, long K, const float* A, long lda, const float* B, long ldb, bool transposed, const float* bias, float* C,
                 long ldc, bool add) {
    const bool is_large = M * N * K > 8 * FEW;
    if (transposed) {
#pragma omp parallel for schedule(static) if (is_large)
        for (long n = 0; n < N; n += DOT_COLUMNS) {
            const float* const part = bias ? bias + n : nullptr;
            if (n + DOT_COLUMNS <= N)
                dots_of_columns<DOT_COLUMNS>(M, K, A, lda, B + n * ldb, ldb, part, C + n, ldc, add);
            else
                for (long last = n; last < N; last++)
                    dots_of_columns<1>(M, K, A, lda, B + last * ldb, ldb, bias ? bias + last : nullptr, C + last, ldc, add);
        }
        return;
    }
    if (M > ROWS) return blocked_product(M, N, K, {A, lda}, {B, ldb}, bias, C, ldc, add);
    long done = 0;
    if (M == 1) done = multiply_wide_strips<1, 8>(N, K, A, lda, B, ldb, bias, C, ldc, add, is_large);
    if (M == 2) done = multiply_wide_strips<2, 4>(N, K, A, lda, B, ldb, bias, C, ldc, add, is_large);
#pragma omp parallel for schedule(static) if (is_large)
    for (long n = done; n < N; n += WIDTH)
        multiply_strip(M, std::min(WIDTH, N - n), K, A, lda, B + n, ldb, bias ? bias + n : nullptr, C + n, ldc, add);
}

}  // namespace ernie
