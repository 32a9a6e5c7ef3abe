// Row-wise kernels: LayerNorm, activations, dropout, sums, conversion.
#include "library.h"
#include "memory.h"

namespace {

const long TOKENS[] = {1, 3, 64, 65, 131};
const long WIDTHS[] = {1, 7, 8, 15, 16, 17, 63, 64, 65, 130};

// LayerNorm of the residual plus dropout(x), forward and backward.
void test_add_norm(const Library& library, long T, long D, float dropout, bool has_residual) {
    begin("add_norm, %ld x %ld, dropout %g, %s residual", T, D, dropout, has_residual ? "with" : "without");
    const float epsilon = 1e-5f;
    const Drop drop{dropout, 0x123456789abcdef0u, 0};
    Array<float> residual(T * D), x(T * D), gain(D), offset(D), y(T * D), scaled(T * D), inverse(T);
    Array<float> grad(T * D), dsum(T * D), dx(T * D), dgain(D), doffset(D);
    const Doubles r = fill(residual), b = fill(x), g = fill(gain), o = fill(offset), up = fill(grad);
    Doubles w_y(T * D), w_normal(T * D), w_inverse(T), w_sum(T * D), w_x(T * D), w_gain(D), w_offset(D);
    for (long t = 0; t < T; t++) {
        Doubles z(D);
        double mean = 0, square = 0, one = 0, two = 0;
        for (long d = 0; d < D; d++) {
            z[d] = (has_residual ? r[t * D + d] : 0) + b[t * D + d] * drop.factor(uint32_t(t), d);
            mean += z[d] / double(D);
        }
        for (long d = 0; d < D; d++) square += (z[d] - mean) * (z[d] - mean) / double(D);
        w_inverse[t] = 1 / std::sqrt(square + epsilon);
        for (long d = 0; d < D; d++) {
            const long i = t * D + d;
            w_normal[i] = (z[d] - mean) * w_inverse[t];
            w_y[i] = w_normal[i] * g[d] + o[d];
            one += up[i] * g[d] / double(D), two += up[i] * g[d] * w_normal[i] / double(D);
            w_gain[d] += up[i] * w_normal[i], w_offset[d] += up[i];
        }
        for (long i = t * D; i < (t + 1) * D; i++) {
            w_sum[i] = (up[i] * g[i - t * D] - one - w_normal[i] * two) * w_inverse[t];
            w_x[i] = w_sum[i] * drop.factor(uint32_t(t), i - t * D);
        }
    }
    const double tolerance = D < 3 ? 1e-2 : 1e-4;  // the deviation of one or two elements can be mere rounding error
    succeeds(library.call("add_norm", has_residual ? residual.data() : (float*)nullptr, x.data(), gain.data(), offset.data(), epsilon, dropout,
                          drop.seed, T, D, y.data(), scaled.data(), inverse.data()));
    expect("y", y.data(), w_y, tolerance);
    expect("normal", scaled.data(), w_normal, tolerance);
    expect("inverse", inverse.data(), w_inverse, tolerance);
    succeeds(library.call("add_norm_backward", grad.data(), scaled.data(), inverse.data(), gain.data(), dropout, drop.seed, T, D, dsum.data(),
                          dx.data(), dgain.data(), doffset.data()));
    expect("dsum", dsum.data(), w_sum, tolerance);
    expect("dx", dx.data(), w_x, tolerance);
    expect("dgain", dgain.data(), w_gain, tolerance);
    expect("doffset", doffset.data(), w_offset, tolerance);
}

double activated(int activation, double x) {
    return activation == 1 ? x * 0.5 * std::erfc(-x / std::sqrt(2.0)) : activation == 2 ? std::max(x, 0.0) : x;
}
double slope(int activation, double x) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
    return activation == 1 ? 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * density : activation == 2 ? double(x > 0) : 1;
}

void test_activation(const Library& library, int activation, long T, long F) {
    begin("activation %d, %ld x %ld", activation, T, F);
    Array<float> u(T * F), y(T * F), grad(T * F), bias(F);
    const Doubles before = fill(u, 3), up = fill(grad);
    Doubles w_y(T * F), w_grad(T * F), w_bias(F);
    for (long i = 0; i < T * F; i++) {
        w_y[i] = activated(activation, before[i]);
        w_grad[i] = up[i] * slope(activation, before[i]);
        w_bias[i % F] += w_grad[i];
    }
    succeeds(library.call("activate", activation, (const float*)u, y.data(), T * F));
    expect("y", y.data(), w_y, 2e-6);
    succeeds(library.call("activate_backward", activation, (const float*)u, grad.data(), T, F, bias.data()));
    expect("gradient", grad.data(), w_grad, 2e-6);
    expect("gradient of the bias", bias.data(), w_bias, 1e-5);
}

void test_drop(const Library& library, long T, long D) {
    begin("drop, %ld x %ld", T, D);
    const Drop drop{0.4f, 99, 0};
    Array<float> x(T * D), y(T * D);
    Doubles wanted = fill(x);
    for (long i = 0; i < T * D; i++) wanted[i] *= drop.factor(uint32_t(i / D), i % D);
    succeeds(library.call("drop", (const float*)x, drop.probability, drop.seed, T, D, y.data()));
    expect("y", y.data(), wanted, 1e-6);
}

template <class E>
void test_column_sum(const Library& library, long T, long D) {
    begin("column_sum, %ld x %ld", T, D);
    Array<E> x(T * D);
    Array<float> sum(D);
    const Doubles values = fill(x);
    Doubles wanted(D);
    for (long i = 0; i < T * D; i++) wanted[i % D] += values[i];
    succeeds(library.call("column_sum", low<E>, (const void*)x.data(), T, D, sum.data()));
    expect("sum", sum.data(), wanted, 1e-5);
}

void test_convert(const Library& library, long T, long D) {
    begin("convert, %ld x %ld", T, D);
    Array<float> x(T * D);
    Array<bf16> y(T * D);
    const Doubles wanted = fill(x);
    succeeds(library.call("convert", (const float*)x, (void*)y.data(), T, D));
    expect("y", y.data(), wanted, 1.0 / 256);
}

}  // namespace

template <class E>
void test_rows(const Library& library) {
    for (long T : TOKENS)
        for (long D : WIDTHS) {
            test_column_sum<E>(library, T, D);
            if (low<E>) {
                test_convert(library, T, D);
                continue;  // the others are only called with float from Python
            }
            test_drop(library, T, D);
            for (int activation : {0, 1, 2}) test_activation(library, activation, T, D);
            for (float dropout : {0.f, 0.25f}) test_add_norm(library, T, D, dropout, dropout == 0 || D % 2);
        }
}

template void test_rows<float>(const Library&);
template void test_rows<bf16>(const Library&);
