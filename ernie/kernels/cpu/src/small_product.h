// C (M, N) = A (M, K) B (K, N) for matrices that fit in the cache, by one thread: the products inside attention.
//
// B is packed beforehand into panels of whole vectors; A is read in place.  A tile of ROWS x COLUMNS vectors of C stays in
// registers during the loop over K (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008).
// bfloat16 is multiplied in pairs along K, with sums in float.
#pragma once
#include "threads.h"
#include "vec.h"

namespace ernie {

// How a type is multiplied: a `Word` is a packed element of B, STEP values along K.
template <class E>
struct Pairing;
template <>
struct Pairing<float> {
    typedef float Word;
    static constexpr int STEP = 1;
    static Vec multiply_add(const float* a, Vec b, Vec c) { return fma(all(*a), b, c); }
    static Vec words(const float* p) { return load(p); }
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

// Sums of ROWS x COLUMNS vectors leave registers for COLUMNS vectors of B.
constexpr int ROWS = 6, COLUMNS = LANES == 16 ? 4 : 2;

template <class E>
long packed_rows(long K) {
    return (K + Pairing<E>::STEP - 1) / Pairing<E>::STEP;
}

// The left factor A: rows in place, or (`TURNED`) packed like B, with the words of a column of A side by side.
template <class E, bool TURNED>
struct Left {
    const E* rows;
    const typename Pairing<E>::Word* words;
    long stride;
    const E* at(long i, long k) const {
        return TURNED ? reinterpret_cast<const E*>(words + k * stride + i) : rows + i * stride + Pairing<E>::STEP * k;
    }
    Left from(long i) const { return TURNED ? Left{rows, words + i, stride} : Left{rows + i * stride, words, stride}; }
};

template <class E, int M, int N, bool TURNED>
inline void tile(Left<E, TURNED> A, const typename Pairing<E>::Word* B, long ldb, float* C, long ldc, long K, bool add) {
    typedef Pairing<E> P;
    Vec c[M][N];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) c[i][j] = add ? load(C + i * ldc + j * LANES) : zero();
    for (long k = 0; k < packed_rows<E>(K); k++) {
        Vec b[N];
        for (int j = 0; j < N; j++) b[j] = P::words(B + k * ldb + j * LANES);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) c[i][j] = P::multiply_add(A.at(i, k), b[j], c[i][j]);
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) store(C + i * ldc + j * LANES, c[i][j]);
}

template <class E, int M, int N, bool TURNED>
inline void tile_of(long rows, Left<E, TURNED> A, const typename Pairing<E>::Word* B, long ldb, float* C, long ldc, long K,
                    bool add) {
    if constexpr (M > 0) {
        if (rows == M)
            tile<E, M, N>(A, B, ldb, C, ldc, K, add);
        else
            tile_of<E, M - 1, N>(rows, A, B, ldb, C, ldc, K, add);
    }
}

template <class E, int N, bool TURNED>
inline void columns_of(long vectors, Left<E, TURNED> A, long M, const typename Pairing<E>::Word* B, long ldb, float* C,
                       long ldc, long K, bool add) {
    if constexpr (N > 0) {
        if (vectors != N) return columns_of<E, N - 1>(vectors, A, M, B, ldb, C, ldc, K, add);
        for (long i = 0; i < M; i += ROWS)
            tile_of<E, ROWS, N>(std::min<long>(ROWS, M - i), A.from(i), B, ldb, C + i * ldc, ldc, K, add);
    }
}

template <class E, bool TURNED>
inline void product_of(Left<E, TURNED> A, long M, const typename Pairing<E>::Word* B, long ldb, long N, long K, float* C, long ldc,
                       bool add) {
    for (long j = 0; j < N; j += COLUMNS * LANES)
        columns_of<E, COLUMNS>(std::min<long>(COLUMNS, (N - j) / LANES), A, M, B + j, ldb, C + j, ldc, K, add);
}

// N is a multiple of LANES; rows of A hold K rounded up to whole words.  With `add`, the product is added to C.
template <class E>
inline void small_product(const E* A, long lda, long M, const typename Pairing<E>::Word* B, long ldb, long N, long K,
                          float* C, long ldc, bool add) {
    product_of(Left<E, false>{A, nullptr, lda}, M, B, ldb, N, K, C, ldc, add);
}

// The same with A (M, K) given as its transpose in packed rows.
template <class E>
inline void small_product_turned(const typename Pairing<E>::Word* A, long lda, long M, const typename Pairing<E>::Word* B, long ldb,
                                 long N, long K, float* C, long ldc, bool add) {
    product_of(Left<E, true>{nullptr, A, lda}, M, B, ldb, N, K, C, ldc, add);
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

#ifdef __AVX512F__
// Transposes 16 x 16 words, in four rounds that exchange pairs, fours, eights and sixteens of words.
inline void transpose(__m512i row[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        row[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        row[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        row[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        row[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_i32x4(row[i + j], row[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(row[i + j], row[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        row[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        row[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    }
}
#else
// Transposes 8 x 8 words, in three rounds that exchange pairs, fours and eights of words.
inline void transpose(__m256 row[8]) {
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    __m256 u[8];
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int j = 0; j < 4; j++) {
        row[j] = _mm256_permute2f128_ps(u[j], u[j + 4], 0x20);
        row[j + 4] = _mm256_permute2f128_ps(u[j], u[j + 4], 0x31);
    }
}

// Stores the first n words, at most 8: faster than a masked store, which some processors split.
inline void store_first(float* p, __m256 x, long n) {
    if (n >= 8) return _mm256_storeu_ps(p, x);
    __m128 half = _mm256_castps256_ps128(x);
    if (n & 4) {
        _mm_storeu_ps(p, half);
        half = _mm256_extractf128_ps(x, 1), p += 4;
    }
    if (n & 2) {
        _mm_storel_pi(reinterpret_cast<__m64*>(p), half);
        half = _mm_movehl_ps(half, half), p += 2;
    }
    if (n & 1) _mm_store_ss(p, half);
}
#endif

// The rows of X (R, C) as `columns` columns of B, whose rows are `width` long: packed_rows(C) x columns, zeros beyond R and C.
template <class E>
inline void pack_transposed(const E* X, long ldx, long R, long C, typename Pairing<E>::Word* out, long columns, long width) {
    constexpr int STEP = Pairing<E>::STEP;
    const long words = packed_rows<E>(C), whole = C / STEP;
    long done = 0;
#ifdef __AVX512F__
    for (; done < whole; done += 16)
        for (long r = 0; r < columns; r += LANES) {
            __m512i square[16];
            const long here = std::min<long>(16, whole - done);
            for (long i = 0; i < 16; i++)
                square[i] = r + i < R ? _mm512_maskz_loadu_epi32(first(here).m, X + (r + i) * ldx + done * STEP) : _mm512_setzero_si512();
            transpose(square);
            const Mask there = first(columns - r);
            for (long k = 0; k < here; k++) _mm512_mask_storeu_epi32(out + (done + k) * width + r, there.m, square[k]);
        }
    done = whole;
#else
    for (; done + 8 <= whole; done += 8)
        for (long r = 0; r < columns; r += LANES) {
            __m256 square[8];
            for (long i = 0; i < 8; i++) square[i] = r + i < R ? _mm256_loadu_ps(X + (r + i) * ldx + done) : _mm256_setzero_ps();
            transpose(square);
            for (long k = 0; k < 8; k++) store_first(out + (done + k) * width + r, square[k], columns - r);
        }
#endif
    for (long k = done; k < words; k++)
        for (long r = 0; r < columns; r++) {
            E values[STEP] = {};
            if (r < R)
                for (int s = 0; s < STEP && k * STEP + s < C; s++) values[s] = X[r * ldx + k * STEP + s];
            std::memcpy(out + k * width + r, values, sizeof values);
        }
}

// The same for all columns of B.
template <class E>
inline void pack_transposed(const E* X, long ldx, long R, long C, typename Pairing<E>::Word* out, long width) {
    pack_transposed(X, ldx, R, C, out, width, width);
}

}  // namespace ernie
