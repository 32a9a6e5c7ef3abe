// C (M, N) = A (M, K) B (K, N) for matrices of any size, by all threads: the products with weights, in the words that
// the processor has instructions for (a float, two bfloat16, four bytes).
//
// A strip is a few rows of A, or 16 columns of B, side by side, word after word along K.  All sums of two strips are
// accumulated in registers, from one word of each row and one of each column at a time; only these two strips are read.  A
// strip of B stays in the inner caches while the strips of A stream past, and is read from memory once (Goto and van de
// Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008).  Each sum runs along K in order: the bits of a
// row do not depend on the other rows.
#pragma once
#include <type_traits>

#include "small_product.h"

namespace ernie {

constexpr long STRIP = 16;              // columns
constexpr int VECTORS = STRIP / LANES;  // of a row's sums
constexpr long BLOCK_WORDS = 1 << 16;   // of the strips of A that stream past one of B at a time: they stay in the outer cache of a core
// Rows: as many as registers hold the sums of.
#ifdef __AVX512F__
constexpr int STRIP_ROWS = 16;
#else
constexpr int STRIP_ROWS = 6;
#endif

// Sums of products of words: `Sum` holds those of a vector of columns.
template <class E>
struct Dot;
template <>
struct Dot<float> {
    typedef Vec Sum;
    static Sum none() { return zero(); }
    static Sum add(Sum c, const uint32_t* a, const uint32_t* b) {
        return fma(all(*reinterpret_cast<const float*>(a)), load(reinterpret_cast<const float*>(b)), c);
    }
};
#ifdef __AVX512BF16__
template <>
struct Dot<bf16> {
    typedef Vec Sum;
    static Sum none() { return zero(); }
    static Sum add(Sum c, const uint32_t* a, const uint32_t* b) {
        return {_mm512_dpbf16_ps(c.v, (__m512bh)_mm512_set1_epi32(int(*a)), (__m512bh)_mm512_loadu_si512(b))};
    }
};
#endif
#ifdef __AVX512VNNI__
// Unsigned bytes in A, signed ones in B.
template <>
struct Dot<uint8_t> {
    typedef Ints Sum;
    static Sum none() { return all(0u); }
    static Sum add(Sum c, const uint32_t* a, const uint32_t* b) {
        return {_mm512_dpbusd_epi32(c.v, _mm512_set1_epi32(int(*a)), _mm512_loadu_si512(b))};
    }
};
template <>
struct Pairing<uint8_t> {
    typedef uint32_t Word;
    static constexpr int STEP = 4;
};
#endif

// A strip as words of E, for `pack` and `pack_transposed`.
template <class E>
typename Pairing<E>::Word* words_of(uint32_t* strip) {
    return reinterpret_cast<typename Pairing<E>::Word*>(strip);
}

// With FETCH the strip of B comes from memory: the data 4 KB ahead is prefetched.
template <class E, int R, bool FETCH, class Done>
inline void tile(long words, const uint32_t* A, const uint32_t* B, long row, const Done& done) {
    constexpr long AHEAD = 4096 / sizeof(uint32_t);
    typename Dot<E>::Sum c[R][VECTORS];
    for (auto& sums : c)
        for (auto& sum : sums) sum = Dot<E>::none();
    for (long k = 0; k < words; k++) {
        const uint32_t *a = A + k * STRIP_ROWS, *b = B + k * STRIP;
        if (FETCH) _mm_prefetch(reinterpret_cast<const char*>(b + AHEAD), _MM_HINT_T0);
        for (int r = 0; r < R; r++)
            for (int v = 0; v < VECTORS; v++) c[r][v] = Dot<E>::add(c[r][v], a + r, b + v * LANES);
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < VECTORS; v++) done(row + r, v * LANES, c[r][v]);
}

template <class E, int R, bool FETCH, class Done>
inline void tile_of(long rows, long words, const uint32_t* A, const uint32_t* B, long row, const Done& done) {
    if constexpr (R > 0) {
        if (rows >= R)
            tile<E, R, FETCH>(words, A, B, row, done);
        else
            tile_of<E, R - 1, FETCH>(rows, words, A, B, row, done);
    }
}

// Calls done(row, column, sums) with the sums of each row for every vector of columns, the last of which may end beyond N.  left(row,
// count, strip) packs rows of A; B is packed already.
template <class E, class Left, class Done>
void strips_product(long M, long N, long K, const Left& left, const uint32_t* B, const Done& done) {
    static thread_local Scratch memory;
    const long words = packed_rows<E>(K), rows = (M + STRIP_ROWS - 1) / STRIP_ROWS, columns = (N + STRIP - 1) / STRIP;
    const long block = std::max(1L, BLOCK_WORDS / (STRIP_ROWS * words));
    uint32_t* A = memory.get<uint32_t>(rows * STRIP_ROWS * words);
    auto pack_strip = [&](long i) { left(i * STRIP_ROWS, std::min<long>(STRIP_ROWS, M - i * STRIP_ROWS), A + i * STRIP_ROWS * words); };
    if (rows == 1) pack_strip(0);  // faster than starting other threads
#pragma omp parallel
    {
        if (rows > 1) {
#pragma omp for schedule(static)
            for (long i = 0; i < rows; i++) pack_strip(i);
        }
        for (long first = 0; first < rows; first += block) {
#pragma omp for schedule(static) nowait
            for (long j = 0; j < columns; j++) {
                const uint32_t* strip = B + j * STRIP * words;
                auto finished = [&](long row, long column, typename Dot<E>::Sum sums) {
                    if (j * STRIP + column < N) done(row, j * STRIP + column, sums);
                };
                const auto multiply = [&](auto fetch, long i) {
                    tile_of<E, STRIP_ROWS, fetch.value>(M - i * STRIP_ROWS, words, A + i * STRIP_ROWS * words, strip, i * STRIP_ROWS, finished);
                };
                multiply(std::true_type(), first);
                for (long i = first + 1; i < std::min(first + block, rows); i++) multiply(std::false_type(), i);
            }
        }
    }
}

}  // namespace ernie
