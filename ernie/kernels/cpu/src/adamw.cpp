// AdamW (Loshchilov and Hutter, 2019, arXiv 1711.05101) in one pass over weights, gradients and moments.
#include "adamw.h"

#include <vector>

#include "threads.h"

namespace ernie {
namespace {
constexpr long PART = 16384;
}

void adamw(const AdamW& a, float* weight, const float* grad, float* moment1, float* moment2, bf16* copy, long count) {
    const Vec keep1 = all(a.beta1), keep2 = all(a.beta2), new1 = all(1 - a.beta1), new2 = all(1 - a.beta2);
    const Vec shrink = all(1 - a.rate * a.decay), step = all(a.rate * a.correction1), unbias = all(a.correction2);
#pragma omp parallel for schedule(static) if (count > PART)
    for (long from = 0; from < count; from += PART)
        for (long i = from; i < std::min(count, from + PART); i += LANES) {
            Mask m = first(count - i);
            Vec g = load(grad + i, m) * all(a.gradient_scale);
            Vec mean = fma(load(moment1 + i, m), keep1, g * new1);
            Vec square = fma(load(moment2 + i, m), keep2, g * g * new2);
            Vec w = load(weight + i, m) * shrink - mean * step / (sqrt(square * unbias) + all(a.epsilon));
            store(weight + i, w, m);
            store(moment1 + i, mean, m);
            store(moment2 + i, square, m);
#ifdef __AVX512BF16__
            if (copy) store(copy + i, w, m);
#else
            (void)copy;
#endif
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
