// Gated recurrent units, forward and backward, in both directions of time.
#include "recurrent.h"

#include <algorithm>
#include <cmath>

#include "library.h"
#include "memory.h"

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void test_units(const Library& library, const std::vector<long>& lengths, long H, bool backward, bool begins) {
    const long N = long(lengths.size());
    begin("GRU, %ld sequences of up to %ld rows, %ld units%s%s", N, *std::max_element(lengths.begin(), lengths.end()), H,
          backward ? ", backward" : "", begins ? ", with first states" : "");
    Array<int64_t> offsets(N + 1), order(N);
    offsets[0] = 0;
    for (long n = 0; n < N; n++) offsets[n + 1] = offsets[n] + lengths[size_t(n)], order[n] = n;
    std::stable_sort(order.data(), order.data() + N, [&](int64_t a, int64_t b) { return lengths[size_t(a)] > lengths[size_t(b)]; });
    const long T = offsets[N];
    Array<float> first(N * H), x(T * 3 * H), U(H * 3 * H), b(3 * H), h(T * H), kept(T * 4 * H);
    const Doubles in = fill(x), w = fill(U, 0.3), bias = fill(b), start = begins ? fill(first) : Doubles(N * H);
    const ernie::Recurrence given{N, H, offsets, order, backward, begins ? first.data() : nullptr};
    const auto row = [&](long n, long t) { return backward ? long(offsets[n + 1]) - 1 - t : long(offsets[n]) + t; };
    // The state before step t of a sequence.
    Doubles states(T * H), saved(T * 4 * H);
    const auto before = [&](long n, long t) { return t ? &states[row(n, t - 1) * H] : &start[n * H]; };
    for (long n = 0; n < N; n++)
        for (long t = 0; t < lengths[size_t(n)]; t++) {
            const double *const was = before(n, t), *const from = &in[row(n, t) * 3 * H];
            Doubles added = bias;
            for (long k = 0; k < H; k++)
                for (long j = 0; j < 3 * H; j++) added[j] += was[k] * w[k * 3 * H + j];
            double* const keep = &saved[row(n, t) * 4 * H];
            for (long i = 0; i < H; i++) {
                keep[i] = sigmoid(from[i] + added[i]), keep[H + i] = sigmoid(from[H + i] + added[H + i]);
                keep[3 * H + i] = added[2 * H + i], keep[2 * H + i] = std::tanh(from[2 * H + i] + keep[i] * keep[3 * H + i]);
                states[row(n, t) * H + i] = (1 - keep[H + i]) * keep[2 * H + i] + keep[H + i] * was[i];
            }
        }
    succeeds(library.call("gru_forward", &given, (const float*)x, (const float*)U, (const float*)b, h.data(), kept.data()));
    expect("h", h.data(), states, 1e-5);
    expect("kept", kept.data(), saved, 1e-5);

    Array<float> grad(T * H), dx(T * 3 * H), dadded(T * 3 * H), dbegin(N * H);
    const Doubles up = fill(grad);
    Doubles to_x(T * 3 * H), to_added(T * 3 * H), to_begin(N * H);
    for (long n = 0; n < N; n++) {
        Doubles back(H);
        for (long t = lengths[size_t(n)] - 1; t >= 0; t--) {
            const double *const was = before(n, t), *const keep = &saved[row(n, t) * 4 * H];
            double *const one = &to_x[row(n, t) * 3 * H], *const other = &to_added[row(n, t) * 3 * H];
            Doubles earlier(H);
            for (long i = 0; i < H; i++) {
                const double d = up[row(n, t) * H + i] + back[i], r = keep[i], z = keep[H + i], c = keep[2 * H + i];
                one[2 * H + i] = d * (1 - z) * (1 - c * c), other[2 * H + i] = one[2 * H + i] * r;
                other[H + i] = one[H + i] = d * (was[i] - c) * z * (1 - z);
                other[i] = one[i] = one[2 * H + i] * keep[3 * H + i] * r * (1 - r);
                earlier[i] = d * z;
            }
            for (long i = 0; i < H; i++)
                for (long j = 0; j < 3 * H; j++) earlier[i] += other[j] * w[i * 3 * H + j];
            back = earlier;
        }
        std::copy(back.begin(), back.end(), &to_begin[n * H]);
    }
    succeeds(library.call("gru_backward", &given, (const float*)U, (const float*)h, (const float*)kept, (const float*)grad, dx.data(), dadded.data(),
                          dbegin.data()));
    expect("gradient of x", dx.data(), to_x, 1e-5);
    expect("gradient of what is added", dadded.data(), to_added, 1e-5);
    expect("gradient of the first states", dbegin.data(), to_begin, 1e-5);
}

}  // namespace

template <class E>
void test_recurrent(const Library& library) {
    if (low<E>) return;  // float only
    for (const bool backward : {false, true}) {
        test_units(library, {1}, 1, backward, false);
        test_units(library, {3, 0, 5, 2}, 7, backward, true);
        test_units(library, {9, 1, 9}, 16, backward, false);
        test_units(library, {4, 11}, 33, backward, true);
        test_units(library, {6, 2, 3, 6, 1, 7, 5, 4, 2}, 50, backward, true);
    }
}

template void test_recurrent<float>(const Library&);
template void test_recurrent<bf16>(const Library&);
