// Products with weights that were laid out for them beforehand: for inference, where weights stay as they are.
#pragma once
#include <memory>
#include <vector>

#include "product.h"
#include "rows.h"

namespace ernie {

// The type that a product multiplies in; int8 is that of the weights, inputs being unsigned, see quantize.
enum class Kind { f32 = 0, bf16 = 1, int8 = 2 };

// A weight (K, N) in the layout that oneDNN likes best.
class PackedWeight {
public:
    // From columns of N_i each, side by side: matrices (K, N_i) in float.
    PackedWeight(Kind, long K, const std::vector<const float*>& parts, const std::vector<long>& widths);
    ~PackedWeight();
    PackedWeight(const PackedWeight&) = delete;

    const long K, N;
    const Kind kind;
    // Of int8: weight = scale[n] * integer, and 128 times the sum of each column's integers.
    std::vector<float> scale;
    std::vector<int32_t> shift;

    // C (M, N) = f(A W + bias); C is of A's type, of int8 32-bit sums without bias and f.
    void multiply(long M, const void* A, const float* bias, Activation, void* C) const;

private:
    struct Layout;
    std::unique_ptr<Layout> layout_;
    void* data_;
};

// Rows as unsigned bytes, 128 being zero: x = scale[t] * (byte - 128).  One scale a row (dynamic quantization, per token).
template <class E>
void quantize(const E* x_TN, long T, long N, uint8_t* bytes_TN, float* scale_T);
// What the sums of a product of bytes stand for, with bias and activation.
template <class E>
void dequantize(const int32_t* sums_TN, const PackedWeight&, const float* scale_T, const float* bias_N, Activation, long T, E* y_TN);

}  // namespace ernie
