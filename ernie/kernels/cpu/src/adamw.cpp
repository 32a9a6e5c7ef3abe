// AdamW (Loshchilov and Hutter, 2019, arXiv 1711.05101) in one pass over weights, gradients and moments.
#include "adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.h"

namespace ernie {
namespace {

constexpr long PART = 16384;
static_assert(PART % IDLE_BLOCK == 0, "a block belongs to one thread");

// Whether all numbers are zero in these of their bits.
bool all_zero(const float* x, long count, uint32_t mask) {
    uint32_t any = 0;
    for (long i = 0; i < count; i++) {
        uint32_t bits;
        std::memcpy(&bits, x + i, sizeof bits);
        any |= bits;
    }
    return !(any & mask);
}

// Whether a block takes no step but to decay.
bool is_idle(Moments& known, const float* grad, const float* moment1, const float* moment2, long count) {
    if (known == Moments::other) return false;
    const auto zeros = [&](const float* moment) { return all_zero(moment, count, ~0u); };  // -0 would become 0
    const bool idle = (known == Moments::zero || (zeros(moment1) && zeros(moment2))) && all_zero(grad, count, ~0u >> 1);
    known = idle ? Moments::zero : Moments::other;
    return idle;
}

void store_copy(bf16* copy, Vec w, Mask m) {
#ifdef __AVX512BF16__
    store(copy, w, m);
#else
    (void)copy, (void)w, (void)m;
#endif
}

}  // namespace

void adamw(const AdamW& a, float* weight, const float* grad, float* moment1, float* moment2, bf16* copy, Moments* moments,
           long count) {
    const Vec keep1 = all(a.beta1), keep2 = all(a.beta2), new1 = all(1 - a.beta1), new2 = all(1 - a.beta2);
    const Vec shrink = all(1 - a.rate * a.decay), step = all(a.rate * a.correction1), unbias = all(a.correction2);
    const bool zeros_stay = moments && std::isfinite(a.gradient_scale) && a.epsilon > 0;
#pragma omp parallel for schedule(static) if (count > PART)
    for (long part = 0; part < count; part += PART)
        for (long from = part; from < std::min(count, part + PART); from += IDLE_BLOCK) {
            const long stop = std::min(count, from + IDLE_BLOCK);
            if (zeros_stay && is_idle(moments[from / IDLE_BLOCK], grad + from, moment1 + from, moment2 + from, stop - from)) {
                for (long i = from; i < stop && (a.decay != 0 || copy); i += LANES) {
                    Mask m = first(stop - i);
                    Vec w = load(weight + i, m) * shrink;
                    store(weight + i, w, m);
                    if (copy) store_copy(copy + i, w, m);
                }
                continue;
            }
            for (long i = from; i < stop; i += LANES) {
                Mask m = first(stop - i);
                Vec g = load(grad + i, m) * all(a.gradient_scale);
                Vec mean = fma(load(moment1 + i, m), keep1, g * new1);
                Vec square = fma(load(moment2 + i, m), keep2, g * g * new2);
                Vec w = load(weight + i, m) * shrink - mean * step / (sqrt(square * unbias) + all(a.epsilon));
                store(weight + i, w, m);
                store(moment1 + i, mean, m);
                store(moment2 + i, square, m);
                if (copy) store_copy(copy + i, w, m);
            }
        }
}

double squares(const float* x, long count) {
    const long parts = (count + PART - 1) / PART;
    std::vector<double> sums(size_t(parts), 0.0);
#pragma omp parallel for schedule(static) if (count > PART)
    for (long part = 0; part < parts; part++) {
        Vec total[4] = {zero(), zero(), zero(), zero()};
        int turn = 0;
        for (long i = part * PART; i < std::min(count, (part + 1) * PART); i += LANES) {
            Vec v = load(x + i, first(count - i));
            total[turn] = fma(v, v, total[turn]);
            turn = (turn + 1) % 4;
        }
        for (Vec t : total) sums[size_t(part)] += sum(t);
    }
    double all_parts = 0;
    for (double part : sums) all_parts += part;
    return all_parts;
}

}  // namespace ernie
