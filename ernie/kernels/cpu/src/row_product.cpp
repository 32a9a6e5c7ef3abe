#include "row_product.h"

#include <algorithm>

#include "memory.h"
#include "small_product.h"
#include "threads.h"

namespace ernie {
namespace {

constexpr long WIDTH = COLUMNS * LANES;  // columns of a strip of B
constexpr long DEPTH = 512;              // rows of a strip that are multiplied at a time: they stay in the cache
constexpr long TALL = 16 * ROWS;         // rows of A that a thread multiplies with a strip

// Rows of C become what products are added to.
void begin_sums(long M, long width, const float* bias, const float* C, long ldc, bool add, float* sums, long lds) {
    for (long m = 0; m < M; m++)
        for (long n = 0; n < width; n += LANES) {
            const Mask there = first(width - n);
            store(sums + m * lds + n, add ? load(C + m * ldc + n, there) : bias ? load(bias + n, there) : zero());
        }
}

// The columns of a strip: it is packed once for many rows, and read in place for a few.
void multiply_strip(long M, long width, long K, const float* A, long lda, const float* B, long ldb, const float* bias, float* C, long ldc,
                    bool add) {
    static thread_local Scratch strip, narrow;
    const bool whole = width == WIDTH;
    float* const sums = whole ? C : narrow.get<float>(M * WIDTH);
    const long lds = whole ? ldc : WIDTH;
    if (!whole || !add) begin_sums(M, width, bias, C, ldc, add, sums, lds);
    for (long k = 0; k < K; k += DEPTH) {
        const long depth = std::min(DEPTH, K - k);
        const float* part = B + k * ldb;
        long stride = ldb;
        if (!whole || M > ROWS) {
            float* const packed = strip.get<float>(DEPTH * WIDTH);
            pack(part, ldb, depth, width, packed, WIDTH);
            part = packed, stride = WIDTH;
        }
        small_product(A + k, lda, M, part, stride, WIDTH, depth, sums, lds, true);
    }
    if (whole) return;
    for (long m = 0; m < M; m++)
        for (long n = 0; n < width; n += LANES) store(C + m * ldc + n, load(sums + m * lds + n), first(width - n));
}

// So few rows that their sums leave registers for V vectors of columns.  Returns how many columns that makes, in whole strips.
template <int M, int V>
long multiply_wide_strips(long N, long K, const float* A, long lda, const float* B, long ldb, const float* bias, float* C, long ldc, bool add,
                          bool is_large) {
    constexpr long WIDE = V * LANES;
#pragma omp parallel for schedule(static) if (is_large)
    for (long n = 0; n < N / WIDE * WIDE; n += WIDE) {
        if (!add) begin_sums(M, WIDE, bias ? bias + n : nullptr, nullptr, 0, false, C + n, ldc);
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
    long done = 0;
    if (M == 1) done = multiply_wide_strips<1, 8>(N, K, A, lda, B, ldb, bias, C, ldc, add, is_large);
    if (M == 2) done = multiply_wide_strips<2, 4>(N, K, A, lda, B, ldb, bias, C, ldc, add, is_large);
    const long strips = (N - done + WIDTH - 1) / WIDTH, blocks = (M + TALL - 1) / TALL;
#pragma omp parallel for schedule(static) if (is_large && strips * blocks > 1)
    for (long t = 0; t < strips * blocks; t++) {
        const long n = done + t % strips * WIDTH, m = t / strips * TALL;
        multiply_strip(std::min(TALL, M - m), std::min(WIDTH, N - n), K, A + m * lda, lda, B + n, ldb, bias ? bias + n : nullptr,
                       C + m * ldc + n, ldc, add);
    }
}

}  // namespace ernie
