// A SIMD vector of floats, as wide as the instruction set being compiled for: 16 lanes for AVX-512, 8 for AVX2.
//
// The kernels are written once with these operations; ernie/kernels/build.py compiles them for each instruction set.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ernie {

// bfloat16: the upper half of a float.  A storage type only; sums are computed in float.
struct bf16 {
    uint16_t bits;
};

#ifdef __AVX512F__

constexpr int LANES = 16;
struct Vec {
    __m512 v;
};
struct Ints {
    __m512i v;
};
struct Mask {
    __mmask16 m;
};

inline Mask first(long n) { return {__mmask16(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1)}; }
inline Mask both(Mask a, Mask b) { return {__mmask16(a.m & b.m)}; }

inline Vec all(float x) { return {_mm512_set1_ps(x)}; }
inline Vec zero() { return {_mm512_setzero_ps()}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec load(const float* p, Mask m) { return {_mm512_maskz_loadu_ps(m.m, p)}; }
inline void store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }
inline void store(float* p, Vec x, Mask m) { _mm512_mask_storeu_ps(p, m.m, x.v); }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a b + c
// Returns b if either is NaN.
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
inline Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
inline Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, 0)}; }
inline Vec times_power_of_two(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
inline Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m.m, b.v, a.v)}; }
inline Vec keep(Mask m, Vec a) { return {_mm512_maskz_mov_ps(m.m, a.v)}; }
inline Mask negative(Vec a) { return {_mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_LT_OQ)}; }
inline float sum(Vec a) { return _mm512_reduce_add_ps(a.v); }
inline float maximum(Vec a) { return _mm512_reduce_max_ps(a.v); }

inline Ints all(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
inline Ints lanes() { return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
inline Ints load(const int32_t* p, Mask m) { return {_mm512_maskz_loadu_epi32(m.m, p)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Ints to_integers(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }  // rounds to nearest
inline Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Stores the first n lanes, with values from 0 to 255, as bytes.
inline void store_bytes(uint8_t* p, Ints a, long n) { _mm512_mask_cvtusepi32_storeu_epi8(p, first(n).m, a.v); }
inline Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline Mask at_least(Ints a, Ints b) { return {_mm512_cmpge_epu32_mask(a.v, b.v)}; }  // unsigned
inline Mask at_most(Ints a, Ints b) { return {_mm512_cmple_epi32_mask(a.v, b.v)}; }   // signed
inline Mask below(Ints a, Ints b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }     // signed
// The upper and lower halves of the 64-bit products of unsigned lanes.
inline void multiply(Ints a, Ints b, Ints& high, Ints& low) {
    __m512i even = _mm512_mul_epu32(a.v, b.v);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), _mm512_srli_epi64(b.v, 32));
    low.v = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
    high.v = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

inline Vec load(const bf16* p) {
    __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline Vec load(const bf16* p, Mask m) {
    __m256i half = _mm256_maskz_loadu_epi16(m.m, p);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
#ifdef __AVX512BF16__
inline void store(bf16* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.v));
}
inline void store(bf16* p, Vec x, Mask m) { _mm256_mask_storeu_epi16(p, m.m, (__m256i)_mm512_cvtneps_pbh(x.v)); }
#endif

#else  // AVX2 with FMA

constexpr int LANES = 8;
struct Vec {
    __m256 v;
};
struct Ints {
    __m256i v;
};
struct Mask {
    __m256i m;  // all bits of a lane set, or none
};

inline Ints all(uint32_t x) { return {_mm256_set1_epi32(int(x))}; }
inline Ints lanes() { return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)}; }
inline Mask first(long n) {
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(int(n < 0 ? 0 : n > 8 ? 8 : n)), lanes().v)};
}
inline Mask both(Mask a, Mask b) { return {_mm256_and_si256(a.m, b.m)}; }

inline Vec all(float x) { return {_mm256_set1_ps(x)}; }
inline Vec zero() { return {_mm256_setzero_ps()}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline Vec load(const float* p, Mask m) { return {_mm256_maskload_ps(p, m.m)}; }
inline void store(float* p, Vec x) { _mm256_storeu_ps(p, x.v); }
inline void store(float* p, Vec x, Mask m) { _mm256_maskstore_ps(p, m.m, x.v); }
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
inline Vec abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.f), a.v)}; }
inline Vec round(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Vec times_power_of_two(Vec a, Vec n) {
    __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
    return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(exponent))};
}
inline Vec select(Mask m, Vec a, Vec b) { return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(m.m))}; }
inline Vec keep(Mask m, Vec a) { return {_mm256_and_ps(a.v, _mm256_castsi256_ps(m.m))}; }
inline Mask negative(Vec a) { return {_mm256_castps_si256(_mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_LT_OQ))}; }
inline float sum(Vec a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
inline float maximum(Vec a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

inline Ints load(const int32_t* p, Mask m) { return {_mm256_maskload_epi32(p, m.m)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline Ints to_integers(Vec a) { return {_mm256_cvtps_epi32(a.v)}; }
inline Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline void store_bytes(uint8_t* p, Ints a, long n) {
    int32_t values[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), a.v);
    for (long i = 0; i < 8 && i < n; i++) p[i] = uint8_t(values[i]);
}
inline Ints operator^(Ints a, Ints b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline Mask at_least(Ints a, Ints b) { return {_mm256_cmpeq_epi32(_mm256_max_epu32(a.v, b.v), a.v)}; }
inline Mask at_most(Ints a, Ints b) { return {_mm256_cmpeq_epi32(_mm256_min_epi32(a.v, b.v), a.v)}; }
inline Mask below(Ints a, Ints b) { return {_mm256_cmpgt_epi32(b.v, a.v)}; }
inline void multiply(Ints a, Ints b, Ints& high, Ints& low) {
    __m256i even = _mm256_mul_epu32(a.v, b.v);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), _mm256_srli_epi64(b.v, 32));
    low.v = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    high.v = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

#endif

// e^x to about one ulp, with x clamped to at least -87, and NaN for NaN: 2^n times the Taylor series of e^f, x = n ln 2 + f.
inline Vec exp(Vec x) {
    x = max(all(-87.f), x);
    Vec n = round(x * all(1.44269504f));
    // x - n ln 2, with ln 2 in two parts (Cody and Waite)
    Vec f = fma(n, all(-0.693145752f), x);
    f = fma(n, all(-1.428606820e-06f), f);
    Vec p = all(1.f / 5040);
    p = fma(p, f, all(1.f / 720));
    p = fma(p, f, all(1.f / 120));
    p = fma(p, f, all(1.f / 24));
    p = fma(p, f, all(1.f / 6));
    p = fma(p, f, all(0.5f));
    p = fma(p, f, all(1.f));
    p = fma(p, f, all(1.f));
    return times_power_of_two(p, n);
}

}  // namespace ernie
