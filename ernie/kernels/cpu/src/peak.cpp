// An upper bound for matrix products: multiply-adds in registers only, with enough sums to hide the latency.
//
// Fog, "Instruction tables" (agner.org/optimize): no processor with these instructions needs more than 12 in flight.
#include "peak.h"

#include "small_product.h"

namespace ernie {

template <class E>
double peak(long rounds) {
    constexpr int SUMS = 12;
    double operations = 0;
#pragma omp parallel reduction(+ : operations)
    {
        E half[2] = {};
        float values[LANES];
        std::fill(values, values + LANES, 0.5f);
        Vec c[SUMS], b = load(values), total = zero();
        for (Vec& sum : c) sum = b;
        for (long i = 0; i < rounds; i++)
            for (Vec& sum : c) sum = Pairing<E>::multiply_add(half, b, sum);
        for (Vec& sum : c) total = total + sum;
        // Uses the sums, so that the compiler does not remove the loop.
        operations += double(rounds) * SUMS * LANES * Pairing<E>::STEP * 2 + (sum(total) < 0);
    }
    return operations;
}

template double peak<float>(long);
#ifdef __AVX512BF16__
template double peak<bf16>(long);
#endif

}  // namespace ernie
