#include "recurrent.h"

#include <vector>

#include "rows.h"
#include "small_product.h"

namespace ernie {
namespace {

// The units of a thread, in whole vectors.
struct Units {
    long first, count, width;
    Units(long units, int thread, int threads) {
        const long vectors = (units + LANES - 1) / LANES, each = (vectors + threads - 1) / threads;
        first = std::min(units, thread * each * LANES);
        count = std::min(units, (thread + 1) * each * LANES) - first;
        width = round_up(count, LANES);
    }
};

// Which sequences are active at a step, and where their rows are.
class Steps {
public:
    explicit Steps(const Recurrence& r) : r_(r) {}
    long longest() const { return r_.sequences ? length(0) : 0; }
    // The number of sequences, longest first, that have a step t.
    long active(long t) const {
        long n = r_.sequences;
        while (n && length(n - 1) <= t) n--;
        return n;
    }
    long row(long n, long t) const {
        const long s = long(r_.order[n]);
        return long(r_.backward ? r_.offsets[s + 1] - 1 - t : r_.offsets[s] + t);
    }

private:
    long length(long n) const { return long(r_.offsets[r_.order[n] + 1] - r_.offsets[r_.order[n]]); }
    const Recurrence& r_;
};

int threads_for(long units) { return int(std::min<long>(omp_get_max_threads(), (units + LANES - 1) / LANES)); }

}  // namespace

void gru_forward(const Recurrence& r, const float* x, const float* U, const float* b, float* h, float* kept) {
    const long N = r.sequences, H = r.units;
    const Steps steps(r);
    std::vector<float> states[2] = {std::vector<float>(size_t(N * H)), std::vector<float>(size_t(N * H))};
    for (long n = 0; r.begin && n < N; n++) std::copy_n(r.begin + r.order[n] * H, H, states[0].data() + n * H);
#pragma omp parallel num_threads(threads_for(H))
    {
        const Units own(H, omp_get_thread_num(), omp_get_num_threads());
        std::vector<float> weights(size_t(H * 3 * own.width) + LANES), added(size_t(N * 3 * own.width) + LANES);
        for (long gate = 0; gate < 3; gate++)
            for (long k = 0; k < H; k++)
                std::copy_n(U + k * 3 * H + gate * H + own.first, own.count, weights.data() + k * 3 * own.width + gate * own.width);
        for (long t = 0; t < steps.longest(); t++) {
            const long active = steps.active(t);
            const float* before = states[t % 2].data();
            float* after = states[(t + 1) % 2].data();
            if (own.count) {
                small_product<float>(before, H, active, weights.data(), 3 * own.width, 3 * own.width, H, added.data(), 3 * own.width, false);
                for (long n = 0; n < active; n++) {
                    const long row = steps.row(n, t);
                    const float *in = x + row * 3 * H + own.first, *from_state = added.data() + n * 3 * own.width, *bias = b + own.first;
                    float* saved = kept + row * 4 * H + own.first;
                    for (long i = 0; i < own.count; i += LANES) {
                        const Mask m = first(own.count - i);
                        Vec reset = sigmoid(load(in + i, m) + load(from_state + i) + load(bias + i, m));
                        Vec update = sigmoid(load(in + H + i, m) + load(from_state + own.width + i) + load(bias + H + i, m));
                        Vec recalled = load(from_state + 2 * own.width + i) + load(bias + 2 * H + i, m);
                        Vec candidate = tanh(load(in + 2 * H + i, m) + reset * recalled);
                        Vec now = candidate + update * (load(before + n * H + own.first + i, m) - candidate);
                        store(saved + i, reset, m);
                        store(saved + H + i, update, m);
                        store(saved + 2 * H + i, candidate, m);
                        store(saved + 3 * H + i, recalled, m);
                        store(after + n * H + own.first + i, now, m);
                        store(h + row * H + own.first + i, now, m);
                    }
                }
            }
#pragma omp barrier
        }
    }
}

void gru_backward(const Recurrence& r, const float* U, const float* h, const float* kept, const float* grad, float* dx, float* dadded,
                  float* dbegin) {
    const long N = r.sequences, H = r.units;
    const Steps steps(r);
    std::vector<float> zeros(size_t(H), 0.f), packed(size_t(N * 3 * H));
    std::fill_n(dbegin, N * H, 0.f);
#pragma omp parallel num_threads(threads_for(H))
    {
        const Units own(H, omp_get_thread_num(), omp_get_num_threads());
        // The rows of U for this thread's units, transposed: the gates' gradients are multiplied by them.
        std::vector<float> weights(size_t(3 * H * own.width) + LANES), back(size_t(N * own.width) + LANES, 0.f), through(back);
        if (own.count) pack_transposed(U + own.first * 3 * H, 3 * H, own.count, 3 * H, weights.data(), own.width);
        for (long t = steps.longest() - 1; t >= 0; t--) {
            const long active = steps.active(t);
            for (long n = 0; own.count && n < active; n++) {
                const long row = steps.row(n, t);
                const float* before = t ? h + steps.row(n, t - 1) * H : r.begin ? r.begin + r.order[n] * H : zeros.data();
                const float* saved = kept + row * 4 * H + own.first;
                float *to_x = dx + row * 3 * H + own.first, *to_added = dadded + row * 3 * H + own.first;
                float* gates = packed.data() + n * 3 * H + own.first;
                for (long i = 0; i < own.count; i += LANES) {
                    const Mask m = first(own.count - i);
                    Vec reset = load(saved + i, m), update = load(saved + H + i, m), candidate = load(saved + 2 * H + i, m);
                    Vec d = load(grad + row * H + own.first + i, m) + load(back.data() + n * own.width + i);
                    Vec d_candidate = d * (all(1.f) - update) * (all(1.f) - candidate * candidate);
                    Vec d_update = d * (load(before + own.first + i, m) - candidate) * update * (all(1.f) - update);
                    Vec d_reset = d_candidate * load(saved + 3 * H + i, m) * reset * (all(1.f) - reset);
                    Vec d_recalled = d_candidate * reset;
                    store(to_x + i, d_reset, m);
                    store(to_x + H + i, d_update, m);
                    store(to_x + 2 * H + i, d_candidate, m);
                    for (float* to : {to_added, gates}) {
                        store(to + i, d_reset, m);
                        store(to + H + i, d_update, m);
                        store(to + 2 * H + i, d_recalled, m);
                    }
                    store(through.data() + n * own.width + i, d * update);
                }
            }
#pragma omp barrier
            if (own.count) {
                small_product<float>(packed.data(), 3 * H, active, weights.data(), own.width, own.width, 3 * H, back.data(), own.width, false);
                for (long n = 0; n < active; n++)
                    for (long i = 0; i < own.width; i += LANES) {
                        float* at = back.data() + n * own.width + i;
                        store(at, load(at) + load(through.data() + n * own.width + i));
                    }
            }
#pragma omp barrier
        }
        for (long n = 0; n < N; n++)
            for (long i = 0; i < own.count; i++) dbegin[r.order[n] * H + own.first + i] = back[size_t(n * own.width + i)];
    }
}

}  // namespace ernie
