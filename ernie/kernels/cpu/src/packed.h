// Products with weights that were laid out for them beforehand: for inference, where weights stay as they are.
#pragma once
#include <memory>
#include <vector>

#include "memory.h"
#include "rows.h"
#include "vec.h"

namespace ernie {

// What a product multiplies; int8 is bytes with per-token scales for inputs and one scale a column for weights.
enum class Kind { f32 = 0, bf16 = 1, int8 = 2 };

// The type of the vectors that go in and come out: float for f32, and for int8 where the build has no bfloat16.
#ifdef __AVX512BF16__
typedef bf16 Low;
#else
typedef float Low;
#endif

// A weight (K, N) in a layout of its own.
class PackedWeight {
public:
    virtual ~PackedWeight() = default;
    // y (M, N) = f(x W + bias), vectors of float for f32 and of Low otherwise.
    virtual void multiply(long M, const void* x, const float* bias, Activation, void* y) = 0;
    // Rows that x and y need to have for M of them to be multiplied; those beyond M are zero, and come out as they may.
    virtual long rows(long M) const = 0;
};

// A weight as it is given: columns of N_i each, side by side, matrices (K, N_i) in float.
struct PlainWeight {
    long K;
    std::vector<const float*> parts;
    std::vector<long> widths;
    long columns() const;
    std::vector<float> joined() const;  // (K, N)
};

// A weight as bytes: weight = scale[n] * integer; `shift` is 128 times the sum of each column's integers, see quantize.
struct QuantizedWeight {
    std::vector<int8_t> integers;  // (K, N)
    std::vector<float> scale;
    std::vector<int32_t> shift;
    explicit QuantizedWeight(const PlainWeight&);
};

// A row as unsigned bytes, 128 being zero: x = scale * (byte - 128).  Returns the scale (dynamic quantization, per token),
// NaN where an element is not finite.
template <class E>
float quantize(const E* x_N, long N, uint8_t* bytes_N);
// What the sums of a product of such bytes with a weight's stand for.
inline Vec dequantize(Ints sums, Ints shift, Vec scale_of_columns, float scale) { return to_floats(sums - shift) * scale_of_columns * all(scale); }

// The weight in the layout that is best on this machine, in memory of `arena`.
std::unique_ptr<PackedWeight> pack_weight(Kind, const PlainWeight&, Arena& arena);
// In strips (strips.h), where the instruction set has words of that kind, otherwise null; and as oneDNN likes it.
std::unique_ptr<PackedWeight> pack_in_strips(Kind, const PlainWeight&, Arena&);
std::unique_ptr<PackedWeight> pack_for_onednn(Kind, const PlainWeight&, Arena&);

}  // namespace ernie
