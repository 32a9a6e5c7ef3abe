// Attention by a Gaussian over the letters of texts.
#include <algorithm>
#include <cmath>

#include "library.h"
#include "memory.h"

namespace {

void test_attention(const Library& library, const std::vector<int64_t>& lengths, long D) {
    const long N = long(lengths.size());
    begin("%ld texts, %ld wide", N, D);
    Array<int64_t> offsets(N + 1), most(N);
    offsets.data()[0] = 0;
    for (long n = 0; n < N; n++) offsets.data()[n + 1] = offsets.data()[n] + lengths[size_t(n)];
    const long T = long(offsets.data()[N]);
    Array<float> positions(N), precisions(N), middles(T), values(T * D), attended(N * D);
    const Doubles at = fill(positions), precision = fill(precisions, 0.2, 1), m = fill(middles), v = fill(values);
    Doubles wanted(N * D);
    for (long n = 0; n < N; n++) {
        const long first = long(offsets.data()[n]), stop = long(offsets.data()[n + 1]);
        double sum = 0;
        for (long t = first; t < stop; t++) sum += std::exp(-0.5 * precision[n] * (m[t] - at[n]) * (m[t] - at[n]));
        for (long t = first; t < stop; t++)
            for (long d = 0; d < D; d++) wanted[n * D + d] += std::exp(-0.5 * precision[n] * (m[t] - at[n]) * (m[t] - at[n])) / sum * v[t * D + d];
    }
    succeeds(library.call("gaussian_attention", N, (const int64_t*)offsets, D, (const float*)positions, (const float*)precisions,
                          (const float*)middles, (const float*)values, attended.data(), most.data()));
    expect("attended", attended.data(), wanted, 1e-5);
}

}  // namespace

template <class E>
void test_gaussian(const Library& library) {
    if (low<E>) return;  // float only
    test_attention(library, {1}, 1);
    test_attention(library, {3, 17, 1}, 40);
}

template void test_gaussian<float>(const Library&);
template void test_gaussian<bf16>(const Library&);
