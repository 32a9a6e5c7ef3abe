// A layer for inference, with plain loops; its matrix products use strips, which need no oneDNN.
#include <cmath>

#include "layer.h"
#include "library.h"
#include "memory.h"

using namespace ernie;

namespace {

constexpr double EPSILON = 1e-5;

// Weights (in, out), biases and norms of one layer.
struct Weights {
    Array<float> q, k, v, out, inner, outer, q_bias, k_bias, v_bias, out_bias, inner_bias, outer_bias, gain1, offset1, gain2, offset2;
    Doubles value[16];

    Weights(long D, long F)
        : q(D * D), k(D * D), v(D * D), out(D * D), inner(D * F), outer(F * D), q_bias(D), k_bias(D), v_bias(D), out_bias(D), inner_bias(F),
          outer_bias(D), gain1(D), offset1(D), gain2(D), offset2(D) {
        int n = 0;
        for (Array<float>* matrix : {&q, &k, &v, &out, &inner}) value[n++] = fill(*matrix, 1 / std::sqrt(double(D)));
        value[n++] = fill(outer, 1 / std::sqrt(double(F)));
        for (Array<float>* bias : {&q_bias, &k_bias, &v_bias, &out_bias, &inner_bias, &outer_bias}) value[n++] = fill(*bias, 0.1);
        for (Array<float>* norm : {&gain1, &offset1, &gain2, &offset2}) value[n++] = fill(*norm, 0.1, norm == &gain1 || norm == &gain2);
    }

    LayerWeights pointers() {
        return {q, k, v, out, inner, outer, q_bias, k_bias, v_bias, out_bias, inner_bias, outer_bias, gain1, offset1, gain2, offset2};
    }
};

Doubles linear(const Doubles& x, const Doubles& weight, const Doubles& bias) {
    const size_t N = bias.size(), K = weight.size() / N, T = x.size() / K;
    Doubles y(T * N);
    for (size_t t = 0; t < T; t++)
        for (size_t n = 0; n < N; n++) {
            double total = bias[n];
            for (size_t k = 0; k < K; k++) total += x[t * K + k] * weight[k * N + n];
            y[t * N + n] = total;
        }
    return y;
}

void add_norm(Doubles& x, const Doubles& branch, const Doubles& gain, const Doubles& offset) {
    const size_t D = gain.size();
    for (size_t t = 0; t < x.size() / D; t++) {
        double mean = 0, variance = 0;
        for (size_t d = 0; d < D; d++) mean += (x[t * D + d] += branch[t * D + d]) / double(D);
        for (size_t d = 0; d < D; d++) variance += (x[t * D + d] - mean) * (x[t * D + d] - mean) / double(D);
        for (size_t d = 0; d < D; d++) x[t * D + d] = (x[t * D + d] - mean) / std::sqrt(variance + EPSILON) * gain[d] + offset[d];
    }
}

Doubles attention(const std::vector<int32_t>& offsets, long heads, const Doubles& q, const Doubles& k, const Doubles& v) {
    const long D = long(q.size()) / offsets.back(), K = D / heads;
    Doubles mixed(q.size());
    for (size_t n = 0; n + 1 < offsets.size(); n++)
        for (long h = 0; h < heads; h++)
            for (long t = offsets[n]; t < offsets[n + 1]; t++) {
                double divisor = 0;
                for (long s = offsets[n]; s < offsets[n + 1]; s++) {
                    double score = 0;
                    for (long d = h * K; d < (h + 1) * K; d++) score += q[t * D + d] * k[s * D + d] / std::sqrt(double(K));
                    const double weight = std::exp(score);
                    divisor += weight;
                    for (long d = h * K; d < (h + 1) * K; d++) mixed[t * D + d] += weight * v[s * D + d];
                }
                for (long d = h * K; d < (h + 1) * K; d++) mixed[t * D + d] /= divisor;
            }
    return mixed;
}

Doubles reference(const std::vector<int32_t>& offsets, long heads, bool gelu, const Weights& w, Doubles x) {
    const Doubles* m = w.value;
    const Doubles q = linear(x, m[0], m[6]), k = linear(x, m[1], m[7]), v = linear(x, m[2], m[8]);
    add_norm(x, linear(attention(offsets, heads, q, k, v), m[3], m[9]), m[12], m[13]);
    Doubles inner = linear(x, m[4], m[10]);
    for (double& u : inner) u = gelu ? 0.5 * u * std::erfc(-u / std::sqrt(2.)) : std::max(u, 0.);
    add_norm(x, linear(inner, m[5], m[11]), m[14], m[15]);
    return x;
}

void test_layer(const Library& library, int kind, double tolerance, std::vector<int32_t> offsets, long heads, long D, long F, bool gelu) {
    const long T = offsets.back();
    begin("inference in kind %d, %ld tokens, %ld heads, %ld x %ld", kind, T, heads, D, F);
    Weights w(D, F);
    const LayerWeights weights = w.pointers();
    Array<float> x(T * D), y(T * D);
    const Doubles given = fill(x);
    const int activation = int(gelu ? Activation::gelu : Activation::relu);
    void* stack = nullptr;
    succeeds(library.call("stack_new", kind, 1l, D, F, activation, float(EPSILON), &weights, &stack));
    LayerShape shape{};
    shape.tokens = shape.outputs = T, shape.width = D, shape.inner = F, shape.activation = Activation(activation), shape.epsilon = EPSILON;
    shape.attention.sequences = long(offsets.size()) - 1, shape.attention.heads = heads, shape.attention.size = D / heads;
    shape.attention.query_offsets = shape.attention.key_offsets = offsets.data();
    shape.attention.scale = float(1 / std::sqrt(double(D / heads)));
    const LayerShape &first = shape, &last = shape;
    const void* adapted = nullptr;  // no rows have updates of their own
    succeeds(library.call("stack_run", stack, &first, &last, &weights, 0l, adapted, (const float*)x, y.data()));
    expect("output", y.data(), reference(offsets, heads, gelu, w, given), tolerance);
    succeeds(library.call("stack_delete", stack));
}

void test_layers(const Library& library, int kind, double tolerance) {
    test_layer(library, kind, tolerance, {0, 1}, 1, 1, 1, true);
    test_layer(library, kind, tolerance, {0, 16}, 4, 64, 128, true);
    test_layer(library, kind, tolerance, {0, 3, 4, 20}, 3, 21, 33, false);
    test_layer(library, kind, tolerance, {0, 17, 49}, 2, 34, 50, true);
    test_layer(library, kind, tolerance, {0, 40, 41, 100}, 5, 35, 7, false);
}

}  // namespace

template <class E>
void test_stack(const Library& library) {
    if (low<E>) {
        test_layers(library, 1, 0.03);
        test_layers(library, 2, 0.06);
    } else {
        test_layers(library, 0, 1e-5);
    }
}
template void test_stack<float>(const Library&);
template void test_stack<bf16>(const Library&);
