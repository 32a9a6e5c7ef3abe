// Gated dilated convolutions: one layer, forward and backward, and a whole WaveNet.
#include <cmath>
#include <deque>

#include "dilated.h"
#include "library.h"
#include "memory.h"

using ernie::GatedLayer;

namespace {

// A layer with random weights, and its results in double precision.
struct Layer {
    long C, taps, H, K, dilation;
    bool last;
    Array<float> mix, mix_bias, skip, residual, residual_bias;
    Doubles m, mb, s, r, rb;

    Layer(long C, long taps, long H, long K, long dilation, bool last)
        : C(C), taps(taps), H(H), K(K), dilation(dilation), last(last), mix((taps * C + H) * 2 * C), mix_bias(2 * C), skip(C * K),
          residual(C * C), residual_bias(C) {
        m = fill(mix, 0.3), mb = fill(mix_bias, 0.3), s = fill(skip, 0.3), r = fill(residual, 0.3), rb = fill(residual_bias, 0.3);
    }
    long shift() const { return (taps - 1) * dilation; }
    GatedLayer given() {
        return {C, taps, H, K, dilation, mix, mix_bias, skip, last ? nullptr : residual.data(), last ? nullptr : residual_bias.data()};
    }
    // The inputs of the gates of row p, of vectors (.., C) from the row `x` on and a conditioner (.., H) from `c` on.
    Doubles gates(const double* x, const double* c, long p) const {
        Doubles u = mb;
        for (long j = 0; j < 2 * C; j++) {
            for (long tap = 0; tap < taps; tap++)
                for (long i = 0; i < C; i++) u[j] += x[(p + tap * dilation) * C + i] * m[(tap * C + i) * 2 * C + j];
            for (long i = 0; i < H; i++) u[j] += c[p * H + i] * m[(taps * C + i) * 2 * C + j];
        }
        return u;
    }
    double gated(const double* u, long i) const { return std::tanh(u[i]) / (1 + std::exp(-u[C + i])); }
    // What a row of gates' inputs adds to an output (K,) and, with the vector `x`, makes the next layer's vector.
    void add_output(const double* u, double* sums) const {
        for (long i = 0; i < C; i++)
            for (long k = 0; k < K; k++) sums[k] += gated(u, i) * s[i * K + k];
    }
    Doubles next(const double* u, const double* x) const {
        Doubles y(x, x + C);
        for (long j = 0; j < C; j++) {
            y[j] += rb[j];
            for (long i = 0; i < C; i++) y[j] += gated(u, i) * r[i * C + j];
        }
        return y;
    }
};

void test_layer(const Library& library, long N, long P, long R, long C, long taps, long H, long K, long dilation, bool last) {
    begin("gated layer, %ld x %ld of %ld rows, %ld channels, %ld taps %ld apart, %ld features, %ld skips%s", N, R, P, C, taps, dilation, H, K,
          last ? ", the last" : "");
    Layer layer(C, taps, H, K, dilation, last);
    const long S = P + layer.shift(), A = P + 3;
    Array<float> x(N * S * C), conditioner(N * A * H), sums(N * R * K), inner(N * P * 2 * C), next(N * P * C);
    const Doubles given = fill(x), features = fill(conditioner);
    Doubles w_sums = fill(sums), w_inner, w_next;
    for (long n = 0; n < N; n++)
        for (long p = 0; p < P; p++) {
            const double* const rows = &given[n * S * C];
            const Doubles u = layer.gates(rows, features.data() + (n * A + A - P) * H, p);
            if (p >= P - R) layer.add_output(u.data(), &w_sums[(n * R + p - (P - R)) * K]);
            const Doubles y = layer.next(u.data(), rows + (p + layer.shift()) * C);
            w_inner.insert(w_inner.end(), u.begin(), u.end());
            w_next.insert(w_next.end(), y.begin(), y.end());
        }
    const GatedLayer of = layer.given();
    float* const to = last ? nullptr : next.data();
    succeeds(library.call("gated_forward", &of, N, S, A, R, (const float*)x, (const float*)conditioner, 1, inner.data(), to, sums.data()));
    expect("inner", inner.data(), w_inner, 1e-5);
    expect("sums", sums.data(), w_sums, 1e-5);
    if (!last) expect("next", next.data(), w_next, 1e-5);

    Array<float> grad(N * R * K), grad_next(N * P * C), grad_inner(N * P * 2 * C), grad_x(N * S * C);
    const Doubles up = fill(grad), up_next = fill(grad_next);
    Doubles d_inner(N * P * 2 * C), d_x(N * S * C);
    for (long n = 0; n < N; n++)
        for (long p = 0; p < P; p++) {
            const double* const u = &w_inner[(n * P + p) * 2 * C];
            double* const d = &d_inner[(n * P + p) * 2 * C];
            for (long i = 0; i < C; i++) {
                double to_gate = 0;
                for (long k = 0; p >= P - R && k < K; k++) to_gate += up[(n * R + p - (P - R)) * K + k] * layer.s[i * K + k];
                for (long j = 0; !last && j < C; j++) to_gate += up_next[(n * P + p) * C + j] * layer.r[i * C + j];
                const double a = std::tanh(u[i]), b = 1 / (1 + std::exp(-u[C + i]));
                d[i] = to_gate * b * (1 - a * a), d[C + i] = to_gate * a * b * (1 - b);
                if (!last) d_x[(n * S + p + layer.shift()) * C + i] += up_next[(n * P + p) * C + i];
            }
            for (long tap = 0; tap < taps; tap++)
                for (long i = 0; i < C; i++)
                    for (long j = 0; j < 2 * C; j++) d_x[(n * S + p + tap * dilation) * C + i] += d[j] * layer.m[(tap * C + i) * 2 * C + j];
        }
    succeeds(library.call("gated_backward", &of, N, S, R, (const float*)inner, (const float*)grad, last ? (const float*)nullptr : grad_next.data(),
                          grad_inner.data(), grad_x.data()));
    expect("gradient of inner", grad_inner.data(), d_inner, 1e-5);
    expect("gradient of x", grad_x.data(), d_x, 1e-5);
}

void test_wavenet(const Library& library, long N, long R, long C, long taps, long H, long K, long O, const std::vector<long>& dilations) {
    begin("WaveNet, %ld times %ld rows, %ld channels, %ld taps, %ld features, %ld skips, %ld outputs", N, R, C, taps, H, K, O);
    std::deque<Layer> layers;
    std::vector<GatedLayer> given;
    long S = R;
    for (size_t l = 0; l < dilations.size(); l++) {
        layers.emplace_back(C, taps, H, K, dilations[l], l + 1 == dilations.size());
        given.push_back(layers.back().given());
        S += layers.back().shift();
    }
    const long A = S + N - 1;  // rows of the conditioner, of which the last matter
    Array<float> samples(N * S), conditioner(N * A * H), first(C), first_bias(C), inner(K * K), inner_bias(K), out(K * O), out_bias(O);
    Array<float> outputs(N * R * O);
    const Doubles w = fill(samples), c = fill(conditioner), f = fill(first), fb = fill(first_bias), in = fill(inner, 0.3), ib = fill(inner_bias);
    const Doubles o = fill(out, 0.3), ob = fill(out_bias);
    Doubles wanted;
    for (long n = 0; n < N; n++) {
        Doubles x, sums(R * K);
        for (long i = 0; i < S; i++)
            for (long j = 0; j < C; j++) x.push_back(w[n * S + i] * f[j] + fb[j]);
        long rows = S;
        for (const Layer& layer : layers) {
            rows -= layer.shift();
            Doubles next;
            for (long p = 0; p < rows; p++) {
                const Doubles u = layer.gates(x.data(), c.data() + (n * A + A - rows) * H, p);
                if (p >= rows - R) layer.add_output(u.data(), &sums[(p - (rows - R)) * K]);
                const Doubles y = layer.next(u.data(), &x[(p + layer.shift()) * C]);
                next.insert(next.end(), y.begin(), y.end());
            }
            x = next;
        }
        for (long i = 0; i < R; i++) {
            Doubles hidden = ib, y = ob;
            for (long k = 0; k < K; k++)
                for (long j = 0; j < K; j++) hidden[j] += std::max(0.0, sums[i * K + k]) * in[k * K + j];
            for (long k = 0; k < K; k++)
                for (long j = 0; j < O; j++) y[j] += std::max(0.0, hidden[k]) * o[k * O + j];
            wanted.insert(wanted.end(), y.begin(), y.end());
        }
    }
    const ernie::WaveNet net{long(given.size()), given.data(), O, first, first_bias, inner, inner_bias, out, out_bias};
    succeeds(library.call("wavenet", &net, N, S, A, (const float*)samples, (const float*)conditioner, (const float*)nullptr, outputs.data(),
                          (float*)nullptr));
    expect("outputs", outputs.data(), wanted, 1e-5);
}

}  // namespace

template <class E>
void test_dilated(const Library& library) {
    if (low<E>) return;  // float only
    test_layer(library, 1, 1, 1, 1, 1, 1, 1, 1, true);
    test_layer(library, 2, 50, 7, 5, 2, 3, 9, 4, false);
    test_layer(library, 3, 131, 131, 16, 3, 4, 16, 1, false);
    test_layer(library, 1, 97, 20, 33, 2, 17, 40, 30, true);
    test_layer(library, 2, 500, 300, 24, 3, 8, 7, 200, false);
    test_wavenet(library, 1, 1, 1, 1, 1, 1, 1, {1});
    test_wavenet(library, 3, 100, 20, 3, 5, 11, 2, {1, 2, 4});
    test_wavenet(library, 2, 777, 32, 2, 7, 32, 2, {1, 64, 3});
}

template void test_dilated<float>(const Library&);
template void test_dilated<bf16>(const Library&);
