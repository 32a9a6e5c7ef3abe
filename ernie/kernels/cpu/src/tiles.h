// C (M, N) = A (M, K) B (K, N) by a unit that multiplies tiles (Intel AMX), in bfloat16 and in bytes: several times as
// fast as by vectors.  B is in the strips of strips.h; A is read as it is, row after row.  A tile has 16 rows of 16 words.
#pragma once
#include "strips.h"

namespace ernie {

constexpr long TILE = 16;
static_assert(STRIP == TILE, "a strip of B is a column of tiles");

// Whether this processor has the unit and the system lets this process use it.  Not if oneDNN is told to use no such
// instructions (ONEDNN_MAX_CPU_ISA).
bool has_tiles();

// Whether products of words of this type are by tiles.
template <class E>
bool in_tiles() {
    return !std::is_same_v<E, float> && has_tiles();
}

// Two strips of 16 columns of B with `words` words each, a multiple of 16; `ldb` words lie between the words of a column.
struct TwoStrips {
    const uint32_t *left, *right;
    long ldb, words;
};

// Between these the calling thread may multiply tiles.
void begin_tiles();
void end_tiles();

// 32 columns of C for one or two tiles of rows, of which the second follows the first in A and in C: `sums` (16 or 32, 32),
// whose rows are `ldc` numbers apart.  `stride` is that of the rows of A, in bytes.
void multiply_tiles(bool two, const bf16* A, long stride, const TwoStrips& B, float* sums, long ldc);
void multiply_tiles(bool two, const uint8_t* A, long stride, const TwoStrips& B, int32_t* sums, long ldc);

// The words of a strip, and the strips of N columns, for tiles: both are rounded up, and filled with zeros.
template <class E>
long tile_words(long K) {
    return round_up(packed_rows<E>(K), TILE);
}
inline long tile_strips(long N) { return round_up((N + STRIP - 1) / STRIP, 2); }

#ifdef __AVX512F__
inline Ints load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }

// As strips_product, with `words` words in a row of A, `stride` bytes from row to row, and rows to a multiple of 16.
template <class E, class Done>
void tiles_product(long M, long N, const E* A, long stride, const uint32_t* B, long words, const Done& done) {
    typedef std::conditional_t<std::is_same_v<E, uint8_t>, int32_t, float> Number;
    constexpr long WIDE = 2 * STRIP;
    const long rows = (M + TILE - 1) / TILE, pairs = tile_strips(N) / 2;
    const long block = std::max(2L, BLOCK_WORDS / (TILE * words) / 2 * 2);  // in tiles of rows
#pragma omp parallel if (M * N * words > (1 << 16))
    {
        begin_tiles();
        alignas(64) Number sums[2 * TILE * WIDE];
        for (long from = 0; from < rows; from += block) {
#pragma omp for schedule(static) nowait
            for (long j = 0; j < pairs; j++) {
                const uint32_t* strips = B + j * WIDE * words;
                for (long i = from; i < std::min(from + block, rows); i += 2) {
                    const E* left = reinterpret_cast<const E*>(reinterpret_cast<const char*>(A) + i * TILE * stride);
                    multiply_tiles(i + 1 < rows, left, stride, {strips, strips + STRIP * words, STRIP, words}, sums, WIDE);
                    for (long r = 0; r < std::min(2 * TILE, M - i * TILE); r++)
                        for (long c = 0; c < WIDE && j * WIDE + c < N; c += LANES) done(i * TILE + r, j * WIDE + c, load(sums + r * WIDE + c));
                }
            }
        }
        end_tiles();
    }
}
#endif

// As small_product: M is a multiple of 16, N of 32, and K of 32, of bfloat16.
inline void small_tiles_product(const bf16* A, long lda, long M, const uint32_t* B, long ldb, long N, long K, float* C, long ldc) {
    for (long j = 0; j < N; j += 2 * TILE)
        for (long i = 0; i < M; i += 2 * TILE)
            multiply_tiles(i + TILE < M, A + i * lda, lda * long(sizeof(bf16)), {B + j, B + j + TILE, ldb, K / 2}, C + i * ldc + j, ldc);
}

}  // namespace ernie
