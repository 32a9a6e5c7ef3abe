#include "blocked_product.h"

#include <algorithm>

#include "small_product.h"
#include "sums.h"
#include "threads.h"

namespace ernie {
namespace {

constexpr long DEPTH = 384;       // along K
constexpr long TALL = 32 * ROWS;  // rows of A

const float* at(Matrix matrix, long row, long column) {
    const float* data = static_cast<const float*>(matrix.data);
    return matrix.transposed ? data + column * matrix.stride + row : data + row * matrix.stride + column;
}

// Rows of A as strips of ROWS, one after the other: `depth` words of ROWS numbers each, the last strip filled up with zeros.
void pack_rows(Matrix A, long m, long rows, long k, long depth, float* out) {
    for (long r = 0; r < rows; r += ROWS, out += depth * ROWS) {
        const long here = std::min<long>(ROWS, rows - r);
        if (A.transposed)
            pack(at(A, m + r, k), A.stride, depth, here, out, ROWS);
        else
            pack_transposed(at(A, m + r, k), A.stride, here, depth, out, ROWS);
    }
}

// A strip of B: `depth` rows of WIDTH columns, zeros beyond `width`.
void pack_columns(Matrix B, long k, long depth, long n, long width, float* out) {
    if (B.transposed)
        pack_transposed(at(B, k, n), B.stride, width, depth, out, WIDTH);
    else
        pack(at(B, k, n), B.stride, depth, width, out, WIDTH);
}

// Rows of C, in the columns of a strip: packed rows of A times a packed strip of B.
void multiply_block(long rows, long width, long depth, const float* A, const float* B, const float* bias, float* C, long ldc, bool add) {
    static thread_local Scratch memory;
    Sums sums(rows, width, bias, C, ldc, add, memory);
    for (long r = 0; r < rows; r += ROWS, A += depth * ROWS)
        tile_of<float, ROWS, COLUMNS, true>(std::min<long>(ROWS, rows - r), {nullptr, A, ROWS}, B, WIDTH, sums.at + r * sums.stride, sums.stride,
                                            depth, true);
    sums.finish();
}

}  // namespace

void blocked_product(long M, long N, long K, Matrix A, Matrix B, const float* bias, float* C, long ldc, bool add) {
    static thread_local Scratch strips_memory;
    const bool is_large = M * N * K > 8 * FEW;
    const long strips = (N + WIDTH - 1) / WIDTH, threads = is_large ? omp_get_max_threads() : 1;
    // As many tasks for each thread: blocks of equal size, or if these are few, groups of strips of each.
    const long least = (M + TALL - 1) / TALL, blocks = least < threads ? least : round_up(least, threads);
    const long tall = round_up((M + blocks - 1) / blocks, ROWS);
    const long groups = least < threads ? std::min(strips, (2 * threads + blocks - 1) / blocks) : 1;
    float* const packed = strips_memory.get<float>(strips * WIDTH * std::min(K, DEPTH));
#pragma omp parallel if (is_large)
    for (long k = 0; k < K; k += DEPTH) {
        const long depth = std::min(DEPTH, K - k);
#pragma omp for schedule(static)
        for (long s = 0; s < strips; s++) pack_columns(B, k, depth, s * WIDTH, std::min(WIDTH, N - s * WIDTH), packed + s * WIDTH * depth);
#pragma omp for schedule(static)
        for (long t = 0; t < blocks * groups; t++) {
            static thread_local Scratch memory;
            const long m = t / groups * tall, rows = std::min(tall, M - m), group = t % groups;
            if (rows <= 0) continue;
            float* const left = memory.get<float>(round_up(rows, ROWS) * depth);
            pack_rows(A, m, rows, k, depth, left);
            for (long s = strips * group / groups; s < strips * (group + 1) / groups; s++) {
                const long n = s * WIDTH;
                multiply_block(rows, std::min(WIDTH, N - n), depth, left, packed + n * depth, bias ? bias + n : nullptr, C + m * ldc + n, ldc,
                               add || k > 0);
            }
        }
    }
}

}  // namespace ernie
