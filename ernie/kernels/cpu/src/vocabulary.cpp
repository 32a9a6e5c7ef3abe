// Softmax and cross entropy of a row of logits: maximum, sum, gradient, in three passes over a row that stays in the cache;
// in a fourth, until it is found, a class that is drawn.
#include "vocabulary.h"

#include "threads.h"

namespace ernie {

constexpr float NO_SHARE = 1e-30f;  // of the highest exponential, which is 1: what `exp` gives for less is no zero

// The first class whose exponential, added to those before it, exceeds `threshold`, a part of their sum.
static int64_t first_above(double threshold, const float* x, float top, long V) {
    double before = 0;
    for (long j = 0; j < V; j += LANES) {
        Mask m = first(V - j);
        float each[LANES];
        const Vec part = keep(m, exp(load(x + j, m) - all(top)));
        const double after = before + sum(part);
        if (after > threshold) {
            store(each, part);
            long last = -1;
            for (long lane = 0; lane < std::min<long>(LANES, V - j); lane++) {
                if (!(each[lane] > NO_SHARE)) continue;
                last = j + lane;
                if ((before += each[lane]) > threshold) return last;
            }
            if (last >= 0) return last;  // the sum of the vector was rounded up
        }
        before = after;
    }
    while (--V > 0 && !(std::exp(x[V] - top) > NO_SHARE)) {}  // the sum of all was rounded up
    return V;
}

template <class E>
void softmax_cross_entropy(const float* logits, const int64_t* labels, const double* draws, long P, long V, float* loss,
                           E* grad, int64_t* drawn) {
#pragma omp parallel for schedule(static)
    for (long p = 0; p < P; p++) {
        const float* x = logits + p * V;
        Vec highest = all(-INFINITY);
        for (long j = 0; j < V; j += LANES) {
            Mask m = first(V - j);
            highest = max(highest, select(m, load(x + j, m), all(-INFINITY)));
        }
        const float top = maximum(highest);
        Vec total = zero();
        for (long j = 0; j < V; j += LANES) {
            Mask m = first(V - j);
            total = total + keep(m, exp(load(x + j, m) - all(top)));
        }
        const float divisor = sum(total);
        loss[p] = top + std::log(divisor) - x[labels[p]];
        if (draws) drawn[p] = first_above(draws[p] * divisor, x, top, V);
        if (!grad) continue;
        E* g = grad + p * V;
        for (long j = 0; j < V; j += LANES) {
            Mask m = first(V - j);
            Vec share = exp(load(x + j, m) - all(top)) * all(1.f / divisor);
            const long lane = labels[p] - j;
            if (lane >= 0 && lane < LANES) {
                float one_hot[LANES] = {};
                one_hot[lane] = 1.f;
                share = share - load(one_hot);
            }
            store(g + j, share, m);
        }
    }
}

template <class E>
void scale(E* x, long count, float factor) {
    constexpr long PART = 4096;
#pragma omp parallel for schedule(static)
    for (long from = 0; from < count; from += PART)
        for (long i = from; i < std::min(count, from + PART); i += LANES) {
            Mask m = first(count - i);
            store(x + i, load(x + i, m) * all(factor), m);
        }
}

template void softmax_cross_entropy<float>(const float*, const int64_t*, const double*, long, long, float*, float*,
                                           int64_t*);
template void scale<float>(float*, long, float);
#ifdef __AVX512BF16__
template void softmax_cross_entropy<bf16>(const float*, const int64_t*, const double*, long, long, float*, bf16*, int64_t*);
template void scale<bf16>(bf16*, long, float);
#endif

}  // namespace ernie
