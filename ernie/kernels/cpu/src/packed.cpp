// Quantization of weights and vectors to bytes.
//
// The instructions multiply unsigned bytes (inputs) by signed bytes (weights).  Inputs are therefore shifted by 128, which
// adds 128 times the sum of the weight's column to each result and is subtracted afterwards.
#include "packed.h"

#include <cpuid.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "threads.h"

namespace ernie {

long PlainWeight::columns() const { return std::accumulate(widths.begin(), widths.end(), 0l); }

std::vector<float> PlainWeight::joined() const {
    const long N = columns();
    std::vector<float> found(size_t(K * N));
    long from = 0;
    for (size_t p = 0; p < parts.size(); from += widths[p++])
        for (long k = 0; k < K; k++) std::copy(parts[p] + k * widths[p], parts[p] + (k + 1) * widths[p], found.data() + k * N + from);
    return found;
}

// The range of quantized weights: without VNNI oneDNN adds two products in 16 bits, where 2 * 255 * 127 would overflow.
static float largest_byte() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool wide = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1);
    const bool narrow = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
    const bool lowered = std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA");
    return (wide || narrow) && !lowered ? 127.f : 63.f;
}

QuantizedWeight::QuantizedWeight(const PlainWeight& weight)
    : integers(size_t(weight.K * weight.columns())), scale(size_t(weight.columns()), 0.f), shift(scale.size(), 0) {
    const std::vector<float> values = weight.joined();
    const size_t N = scale.size();
    // Bytes cannot represent infinity or NaN: the column's scale becomes NaN instead, and so do the results.
    for (size_t i = 0; i < values.size(); i++) scale[i % N] = std::isfinite(values[i]) ? std::max(scale[i % N], std::fabs(values[i])) : NAN;
    const float most = largest_byte();
    for (float& s : scale) s = s == 0 ? 1.f : s / most;
    for (size_t i = 0; i < values.size(); i++) {
        const float s = scale[i % N];
        const int value = std::isnan(s) ? 0 : int(std::lrintf(values[i] / s));
        integers[i] = int8_t(value);
        shift[i % N] += 128 * value;
    }
}

template <class E>
float quantize(const E* x, long N, uint8_t* bytes) {
    Vec highest = zero(), finite = zero();  // finite becomes NaN if an element is infinite or NaN
    for (long i = 0; i < N; i += LANES) {
        const Vec value = load(x + i, first(N - i));
        highest = max(highest, abs(value)), finite = finite + (value - value);
    }
    const float top = maximum(highest), scale = sum(finite) != 0 ? NAN : top > 0 ? top / 127.f : 1.f;
    const Vec inverse = all(1.f / scale);
    for (long i = 0; i < N; i += LANES) store_bytes(bytes + i, to_integers(load(x + i, first(N - i)) * inverse) + all(128u), N - i);
    return scale;
}
template float quantize<float>(const float*, long, uint8_t*);
#ifdef __AVX512BF16__
template float quantize<bf16>(const bf16*, long, uint8_t*);
#endif

std::unique_ptr<PackedWeight> pack_weight(Kind kind, const PlainWeight& weight, Arena& arena) {
#ifndef __AVX512VNNI__
    if (kind == Kind::int8) return pack_for_onednn(weight, arena);
#endif
    return pack_in_strips(kind, weight, arena);
}

}  // namespace ernie
