// C (M, N) = A (M, K) B (K, N) for matrices of any size, by all threads: the products with weights, in the words that
// AVX-512 has instructions for (a float, two bfloat16, four bytes).
//
// A strip is 16 rows of A, or 16 columns of B, side by side, word after word along K.  16 x 16 sums are accumulated in
// registers, from one word of each row and one vector of columns at a time; only these two strips are read.  A strip of B
// stays in the inner caches while the strips of A stream past, and is read from memory once (Goto and van de Geijn,
// "Anatomy of high-performance matrix multiplication", ACM TOMS 2008).
#pragma once
#include "small_product.h"

#ifdef __AVX512F__
namespace ernie {

constexpr long STRIP = 16;

// Sums of products of words: `Sum` holds 16 of them.
template <class E>
struct Dot;
template <>
struct Dot<float> {
    typedef Vec Sum;
    static Sum none() { return zero(); }
    static Sum add(Sum c, uint32_t a, __m512i b) {
        return {_mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(int(a))), _mm512_castsi512_ps(b), c.v)};
    }
};
#ifdef __AVX512BF16__
template <>
struct Dot<bf16> {
    typedef Vec Sum;
    static Sum none() { return zero(); }
    static Sum add(Sum c, uint32_t a, __m512i b) { return {_mm512_dpbf16_ps(c.v, (__m512bh)_mm512_set1_epi32(int(a)), (__m512bh)b)}; }
};
#endif
#ifdef __AVX512VNNI__
// Unsigned bytes in A, signed ones in B.
template <>
struct Dot<uint8_t> {
    typedef Ints Sum;
    static Sum none() { return all(0u); }
    static Sum add(Sum c, uint32_t a, __m512i b) { return {_mm512_dpbusd_epi32(c.v, _mm512_set1_epi32(int(a)), b)}; }
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
    typename Dot<E>::Sum c[R];
    for (int r = 0; r < R; r++) c[r] = Dot<E>::none();
    for (long k = 0; k < words; k++) {
        if (FETCH) _mm_prefetch(reinterpret_cast<const char*>(B + k * STRIP + AHEAD), _MM_HINT_T0);
        const __m512i b = _mm512_loadu_si512(B + k * STRIP);
        for (int r = 0; r < R; r++) c[r] = Dot<E>::add(c[r], A[k * STRIP + r], b);
    }
    for (int r = 0; r < R; r++) done(row + r, c[r]);
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

// Calls done(row, column, sums) with the sums of each row for every 16 columns, including those beyond N.  left(row, count,
// strip) packs rows of A; B is packed already.
template <class E, class Left, class Done>
void strips_product(long M, long N, long K, const Left& left, const uint32_t* B, const Done& done) {
    static thread_local Scratch memory;
    const long words = packed_rows<E>(K), rows = (M + STRIP - 1) / STRIP, columns = (N + STRIP - 1) / STRIP;
    uint32_t* A = memory.get<uint32_t>(rows * STRIP * words);
    auto pack_strip = [&](long i) { left(i * STRIP, std::min(STRIP, M - i * STRIP), A + i * STRIP * words); };
    if (rows == 1) pack_strip(0);  // faster than starting other threads
#pragma omp parallel
    {
        if (rows > 1) {
#pragma omp for schedule(static)
            for (long i = 0; i < rows; i++) pack_strip(i);
        }
#pragma omp for schedule(static)
        for (long j = 0; j < columns; j++) {
            const uint32_t* strip = B + j * STRIP * words;
            auto finished = [&](long row, typename Dot<E>::Sum sums) { done(row, j * STRIP, sums); };
            tile_of<E, STRIP, true>(M, words, A, strip, 0, finished);
            for (long i = 1; i < rows; i++) tile_of<E, STRIP, false>(M - i * STRIP, words, A + i * STRIP * words, strip, i * STRIP, finished);
        }
    }
}

}  // namespace ernie
#endif
