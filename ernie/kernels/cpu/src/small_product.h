// C (M, N) = A (M, K) B (K, N) for matrices that fit the cache, by one thread: the products inside attention.
//
// B is packed beforehand into panels of whole vectors; A is read in place.  A tile of ROWS x COLUMNS vectors of C stays in
// registers while K runs (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008).
// bfloat16 is multiplied in pairs along K, with sums in float.
#pragma once
#include "threads.h"
#include "vec.h"

namespace ernie {

// How a type is multiplied: `Word` is a packed element of B, STEP values along K.
template <class E>
struct Pairing;
template <>
struct Pairing<float> {
    typedef float Word;
    static constexpr int STEP = 1;
    static Vec multiply_add(const float* a, Vec b, Vec c) { return fma(all(*a), b, c); }
    static Vec words(const float* p) { return load(p); }
    static float word(float a) { return a; }
};
#ifdef __AVX512BF16__
template <>
struct Pairing<bf16> {
    typedef uint32_t Word;
    static constexpr int STEP = 2;
    static Vec multiply_add(const bf16* a, Vec b, Vec c) {
        int pair;
        std::memcpy(&pair, a, 4);
        return {_mm512_dpbf16_ps(c.v, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b.v)};
    }
    static Vec words(const uint32_t* p) { return {_mm512_castsi512_ps(_mm512_loadu_si512(p))}; }
};
#endif

#if defined(__AVX512F__)
constexpr int ROWS = 6, COLUMNS = 4;
#else
constexpr int ROWS = 4, COLUMNS = 2;
#endif

template <class E>
long packed_rows(long K) {
    return (K + Pairing<E>::STEP - 1) / Pairing<E>::STEP;
}

template <class E, int M, int N>
inline void tile(const E* A, long lda, const typename Pairing<E>::Word* B, long ldb, float* C, long ldc, long K, bool add) {
    typedef Pairing<E> P;
    Vec c[M][N];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) c[i][j] = add ? load(C + i * ldc + j * LANES) : zero();
    for (long k = 0; k < packed_rows<E>(K); k++) {
        Vec b[N];
        for (int j = 0; j < N; j++) b[j] = P::words(B + k * ldb + j * LANES);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) c[i][j] = P::multiply_add(A + i * lda + P::STEP * k, b[j], c[i][j]);
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) store(C + i * ldc + j * LANES, c[i][j]);
}

template <class E, int M, int N>
inline void tile_of(long rows, const E* A, long lda, const typename Pairing<E>::Word* B, long ldb, float* C, long ldc,
                    long K, bool add) {
    if constexpr (M > 0) {
        if (rows == M)
            tile<E, M, N>(A, lda, B, ldb, C, ldc, K, add);
        else
            tile_of<E, M - 1, N>(rows, A, lda, B, ldb, C, ldc, K, add);
    }
}

template <class E, int N>
inline void columns_of(long vectors, const E* A, long lda, long M, const typename Pairing<E>::Word* B, long ldb, float* C,
                       long ldc, long K, bool add) {
    if constexpr (N > 0) {
        if (vectors != N) return columns_of<E, N - 1>(vectors, A, lda, M, B, ldb, C, ldc, K, add);
        for (long i = 0; i < M; i += ROWS)
            tile_of<E, ROWS, N>(std::min<long>(ROWS, M - i), A + i * lda, lda, B, ldb, C + i * ldc, ldc, K, add);
    }
}

// N is a multiple of LANES; rows of A hold K rounded up to whole words.  With `add`, C is added to.
template <class E>
inline void small_product(const E* A, long lda, long M, const typename Pairing<E>::Word* B, long ldb, long N, long K,
                          float* C, long ldc, bool add) {
    for (long j = 0; j < N; j += COLUMNS * LANES)
        columns_of<E, COLUMNS>(std::min<long>(COLUMNS, (N - j) / LANES), A, lda, M, B + j, ldb, C + j, ldc, K, add);
}

// The rows of X (R, C) as the rows of B: packed_rows(R) x width, zeros beyond R and C.
template <class E>
inline void pack(const E* X, long ldx, long R, long C, typename Pairing<E>::Word* out, long width) {
    constexpr int STEP = Pairing<E>::STEP;
    for (long r = 0; r < R; r += STEP) {
        auto* row = out + r / STEP * width;
        if constexpr (STEP == 1) {
            for (long c = 0; c < width; c += LANES) store(row + c, load(X + r * ldx + c, first(C - c)));
        } else {
#ifdef __AVX512BF16__
            const E *upper = X + r * ldx, *lower = upper + ldx;
            for (long c = 0; c < width; c += LANES) {
                Mask m = first(C - c);
                __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m.m, upper + c));
                __m512i high = r + 1 < R ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m.m, lower + c)) : _mm512_setzero_si512();
                _mm512_storeu_si512(row + c, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
            }
#endif
        }
    }
}

// The rows of X (R, C) as the columns of B: packed_rows(C) x width, zeros beyond R and C.
template <class E>
inline void pack_transposed(const E* X, long ldx, long R, long C, typename Pairing<E>::Word* out, long width) {
    constexpr int STEP = Pairing<E>::STEP;
    long words = packed_rows<E>(C), whole = C / STEP;
    for (long r = 0; r < width; r += LANES) {
#ifdef __AVX512F__
        Mask m = first(R - r);
        // A word of each of 16 rows; for pairs, the row must begin at an even element.
        const int* base = reinterpret_cast<const int*>(X + r * ldx);
        long stride = ldx / STEP;
        bool aligned = ldx % STEP == 0;
        if (aligned) {
            __m512i index = _mm512_mullo_epi32(lanes().v, _mm512_set1_epi32(int(stride)));
            for (long k = 0; k < whole; k++)
                _mm512_storeu_si512(reinterpret_cast<int*>(out) + k * width + r,
                                    _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m.m, index, base + k, 4));
        }
#else
        bool aligned = false;
#endif
        for (long k = aligned ? whole : 0; k < words; k++)
            for (long lane = 0; lane < LANES; lane++) {
                E values[STEP] = {};
                if (r + lane < R)
                    for (int s = 0; s < STEP && k * STEP + s < C; s++) values[s] = X[(r + lane) * ldx + k * STEP + s];
                std::memcpy(out + k * width + r + lane, values, sizeof values);
            }
    }
}

}  // namespace ernie
