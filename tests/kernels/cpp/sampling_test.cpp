// Sampling from a WaveNet, sample by sample.
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "library.h"
#include "memory.h"

namespace {

void test_draw(const Library& library, long N, long S, long C, long taps, const std::vector<int64_t>& dilations, bool noisy) {
    const long L = long(dilations.size());
    begin("%ld sounds of %ld samples, %ld layers of %ld channels, %ld taps%s", N, S, L, C, taps, noisy ? "" : ", given");
    Array<int64_t> apart(L);
    std::copy(dilations.begin(), dilations.end(), apart.data());
    Array<float> first(2 * C), mix(L * taps * C * 2 * C), project(L * C * 2 * C), bias(L * C), inner(C * C), inner_bias(C), out(C * 2), out_bias(2);
    Array<float> conditioning(N * S * L * 2 * C), noise(N * S), samples(N * S), before(N);
    const Doubles f = fill(first, 0.5), m = fill(mix, 0.2), p = fill(project, 0.2), pb = fill(bias, 0.2), in = fill(inner, 0.2);
    const Doubles ib = fill(inner_bias, 0.2), o = fill(out, 0.1), ob = fill(out_bias, 0.1, -1), c = fill(conditioning, 0.5), z = fill(noise), b = fill(before, 0.1);
    Doubles drawn = fill(samples, 0.2);
    std::deque<Array<float>> rows;
    std::vector<float*> places;
    std::vector<Doubles> wanted;
    for (long r = 0; r < N * L; r++) {
        const long dilation = long(dilations[size_t(r % L)]);
        rows.emplace_back(((taps - 1) * dilation + S) * C);
        wanted.push_back(fill(rows.back(), 0.5));
        places.push_back(rows.back().data());
    }
    constexpr double LOUDNESS = 0.25;
    double last = 0;
    for (long t = 0; t < N * S; t++) {
        const long n = t / S, s = t % S;
        if (s == 0) last = b[n];
        Doubles x(C), total(C), hidden = ib;
        for (long i = 0; i < C; i++) x[i] = last / LOUDNESS * f[i] + f[C + i];
        for (long l = 0; l < L; l++) {
            double* const oldest = &wanted[size_t(n * L + l)][s * C];
            const long dilation = long(dilations[size_t(l)]);
            std::copy(x.begin(), x.end(), oldest + (taps - 1) * dilation * C);
            Doubles u(&c[(t * L + l) * 2 * C], &c[(t * L + l) * 2 * C] + 2 * C);
            for (long tap = 0; tap < taps; tap++)
                for (long i = 0; i < C; i++)
                    for (long j = 0; j < 2 * C; j++) u[j] += oldest[tap * dilation * C + i] * m[((l * taps + tap) * C + i) * 2 * C + j];
            for (long j = 0; j < C; j++) x[j] += pb[l * C + j];
            for (long i = 0; i < C; i++) {
                const double gated = std::tanh(u[i]) / (1 + std::exp(-u[C + i]));
                for (long j = 0; j < C; j++) {
                    total[j] += gated * p[(l * C + i) * 2 * C + j];
                    x[j] += gated * p[(l * C + i) * 2 * C + C + j];
                }
            }
        }
        for (long i = 0; i < C; i++)
            for (long j = 0; j < C; j++) hidden[j] += std::max(0.0, total[i]) * in[i * C + j];
        double mean = ob[0], log_scale = ob[1];
        for (long i = 0; i < C; i++) mean += std::max(0.0, hidden[i]) * o[2 * i], log_scale += std::max(0.0, hidden[i]) * o[2 * i + 1];
        if (noisy) drawn[t] = std::clamp(LOUDNESS * (mean + std::exp(log_scale) * z[t]), -1.0, 1.0);
        last = drawn[t];
    }
    const ernie::Network network{L, C, taps, float(LOUDNESS), apart, first, mix, project, bias, inner, inner_bias, out, out_bias};
    const float* const given = noisy ? noise.data() : nullptr;
    succeeds(library.call("draw", &network, N, S, (const float*)before, (const float*)conditioning, given, (float* const*)places.data(),
                          samples.data()));
    expect("samples", samples.data(), drawn, 1e-5);
    for (size_t r = 0; r < places.size(); r++) expect("rows", places[r], wanted[r], 1e-5);
}

}  // namespace

template <class E>
void test_sampling(const Library& library) {
    if (low<E>) return;  // float only
    for (const bool noisy : {true, false}) {
        test_draw(library, 1, 1, 1, 1, {1}, noisy);
        test_draw(library, 1, 20, 5, 2, {1, 2, 4}, noisy);
        test_draw(library, 3, 33, 24, 3, {1, 7}, noisy);
        test_draw(library, 17, 10, 40, 2, {3}, noisy);
    }
}

template void test_sampling<float>(const Library&);
template void test_sampling<bf16>(const Library&);
