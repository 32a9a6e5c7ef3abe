// Products with packed weights, for inference, where weights do not change.
#pragma once
#include <memory>
#include <vector>

#include "memory.h"
#include "rows.h"
#include "vec.h"

namespace ernie {

// The type of a product's factors; int8 has a scale per token for inputs and one per column for weights.
enum class Kind { f32 = 0, bf16 = 1, int8 = 2 };

// The type of input and output vectors, except for f32: bfloat16, or float if the build has none.
#ifdef __AVX512BF16__
typedef bf16 Low;
#else
typedef float Low;
#endif

// A weight (K, N) in a layout of its own.
class PackedWeight {
public:
    virtual ~PackedWeight() = default;
    // y (M, N) = f(x W + bias), vectors of float for f32 and of Low otherwise.  Several threads may call it at once.  The bits
    // of a row do not depend on the other rows.
    virtual void multiply(long M, const void* x, const float* bias, Activation, void* y) = 0;
    // The rows that x and y must have to multiply M of them; those beyond M are zero in x and arbitrary in y.
    virtual long rows(long M) const = 0;
};

// An unpacked weight: float matrices (K, N_i), side by side.
struct PlainWeight {
    long K;
    std::vector<const float*> parts;
    std::vector<long> widths;
    long columns() const;
    std::vector<float> joined() const;  // (K, N)
};

// A weight as int8: weight = scale[n] * integer; `shift` is 128 times the sum of each column's integers, see quantize.
struct QuantizedWeight {
    std::vector<int8_t> integers;  // (K, N)
    std::vector<float> scale;
    std::vector<int32_t> shift;
    explicit QuantizedWeight(const PlainWeight&);
};

// Quantizes a row to unsigned bytes with zero at 128: x = scale * (byte - 128) (dynamic quantization, per token).  Returns
// the scale, NaN if an element is not finite.
template <class E>
float quantize(const E* x_N, long N, uint8_t* bytes_N);
// Converts the integer sums of a product of quantized rows and a quantized weight to floats.
inline Vec dequantize(Ints sums, Ints shift, Vec scale_of_columns, float scale) { return to_floats(sums - shift) * scale_of_columns * all(scale); }

// Packs the weight in the best layout for this machine, in memory of `arena`.
std::unique_ptr<PackedWeight> pack_weight(Kind, const PlainWeight&, Arena& arena);
// In strips (strips.h); and as int8 in oneDNN's layout.
std::unique_ptr<PackedWeight> pack_in_strips(Kind, const PlainWeight&, Arena&);
std::unique_ptr<PackedWeight> pack_for_onednn(const PlainWeight&, Arena&);

}  // namespace ernie
