// Operations on each token's vector by itself.
#pragma once
#include "dropout.h"

namespace ernie {

// Converts the vectors of T tokens to another type; rows from T up to `padded` are set to zero.
template <class E>
void convert(const float* x_TD, E* y_TD, long T, long D, long padded);
template <class E>
void clear_rows(E* x_TD, long from, long to, long D);
// The sum over tokens, (D,); `ld` elements from row to row.
template <class E>
void column_sum(const E* x_TD, long T, long D, long ld, float* sum_D);

enum class Activation { none = 0, gelu = 1, relu = 2 };

// The standard normal CDF at x, to 1e-7 (Abramowitz and Stegun, 7.1.26), and e^(-x^2 / 2) as `density`.
inline Vec normal_share(Vec x, Vec& density) {
    Vec size = abs(x);
    density = exp(x * x * all(-0.5f));
    Vec t = all(1.f) / fma(size, all(0.3275911f * 0.70710678f), all(1.f));
    Vec p = fma(all(1.061405429f), t, all(-1.453152027f));
    p = fma(p, t, all(1.421413741f));
    p = fma(p, t, all(-0.284496736f));
    p = fma(p, t, all(0.254829592f));
    Vec above = p * t * density * all(0.5f);
    return select(negative(x), above, all(1.f) - above);
}

inline Vec apply(Activation activation, Vec x) {
    Vec density;
    if (activation == Activation::gelu) return x * normal_share(x, density);
    return activation == Activation::relu ? max(zero(), x) : x;
}

template <class E>
void activate(Activation, const E* u, E* y, long count);
// Turns `grad` into the gradient of u; `bias` (F,) is its sum over tokens.
template <class E>
void activate_backward(Activation, const E* u_TF, E* grad_TF, long T, long F, float* bias_F);

// The argument is clamped to the range of exp: at -87 the sigmoid is practically zero.
inline Vec sigmoid(Vec x) { return all(1.f) / (all(1.f) + exp(zero() - max(all(-87.f), x))); }
inline Vec tanh(Vec x) { return fma(sigmoid(x + x), all(2.f), all(-1.f)); }
// tanh(a) sigmoid(b), with one division for both.  At a = -20 tanh is -1 already, and the product below is finite unless
// the sigmoid is practically zero.
inline Vec gate(Vec a, Vec b) {
    const Vec u = exp(zero() - max(all(-40.f), a + a)), v = exp(zero() - max(all(-87.f), b));
    return (all(1.f) - u) / ((all(1.f) + u) * (all(1.f) + v));
}

// y = tanh(a) sigmoid(b), where a and b are the halves of each row of u (T, 2 C).
void gate(const float* u_TC2, long T, long C, float* y_TC);

// y = LayerNorm(residual + dropout(x)); any of residual, x, y, y_low may be null.  Ba et al. (2016), arXiv 1607.06450.
// Saved for the backward pass: the normalized vectors before gain and offset, and 1 / the standard deviation.
template <class E>
void add_norm(const float* residual_TD, const E* x_TD, const float* gain_D, const float* offset_D, float epsilon, const Dropout&,
              long T, long D, float* y_TD, E* y_low_TD, E* normal_TD, float* inverse_T);
// Gradients of the residual (`dsum`), of x through the dropout (may be null), gain, offset, and the sum of dx over tokens.
template <class E>
void add_norm_backward(const float* grad_TD, const E* normal_TD, const float* inverse_T, const float* gain_D, const Dropout&, long T,
                       long D, float* dsum_TD, E* dx_TD, float* dgain_D, float* doffset_D, float* dx_sum_D);
// y = normal * gain + offset, as in the forward pass.
template <class E>
void restore(const E* normal_TD, const float* gain_D, const float* offset_D, long T, long D, E* y_TD);
// y = dropout(x), or its gradient.
void drop(const float* x_TD, const Dropout&, long T, long D, float* y_TD);

}  // namespace ernie
