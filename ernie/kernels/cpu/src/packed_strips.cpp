// Weights in strips: each product reads them from memory once, whatever the number of rows.
#include <stdexcept>

#include "packed.h"
#include "strips.h"

namespace ernie {
namespace {

// A weight of type E, multiplied by rows of type E.
template <class E>
class StripsWeight : public PackedWeight {
public:
    StripsWeight(const PlainWeight& weight, Arena& arena) : K_(weight.K), N_(weight.columns()) {
        const std::vector<float> joined = weight.joined();
        std::vector<E> values(joined.size());
        for (size_t i = 0; i < values.size(); i += LANES) {
            const Mask m = first(long(values.size() - i));
            store(values.data() + i, load(joined.data() + i, m), m);
        }
        const long words = packed_rows<E>(K_), columns = round_up(N_, STRIP);
        uint32_t* strips = static_cast<uint32_t*>(arena.get(size_t(columns * words) * sizeof(uint32_t)));
        for (long n = 0; n < N_; n += STRIP) pack(values.data() + n, N_, K_, std::min(STRIP, N_ - n), words_of<E>(strips + n * words), STRIP);
        strips_ = strips;
    }

    long rows(long M) const override { return M; }

    void multiply(long M, const void* x, const float* bias, Activation activation, void* y) override {
        const E* rows = static_cast<const E*>(x);
        E* out = static_cast<E*>(y);
        auto left = [&](long row, long count, uint32_t* strip) { pack_transposed(rows + row * K_, K_, count, K_, words_of<E>(strip), STRIP_ROWS); };
        strips_product<E>(M, N_, K_, left, strips_, [&](long row, long column, Vec sums) {
            const Mask m = first(N_ - column);
            store(out + row * N_ + column, apply(activation, sums + load(bias + column, m)), m);
        });
    }

private:
    const long K_, N_;
    const uint32_t* strips_;
};

#ifdef __AVX512VNNI__
// An int8 weight, multiplied by rows of type Low, which are quantized on the way.
class ByteStripsWeight : public PackedWeight {
public:
    ByteStripsWeight(const PlainWeight& weight, Arena& arena) : K_(weight.K), N_(weight.columns()) {
        QuantizedWeight quantized(weight);
        const long words = packed_rows<uint8_t>(K_), columns = round_up(N_, STRIP);
        int8_t* strips = static_cast<int8_t*>(arena.get(size_t(columns * words) * sizeof(uint32_t)));
        std::fill(strips, strips + columns * words * 4, 0);
        for (long k = 0; k < K_; k++)
            for (long n = 0; n < N_; n++) strips[((n / STRIP * words + k / 4) * STRIP + n % STRIP) * 4 + k % 4] = quantized.integers[size_t(k * N_ + n)];
        strips_ = reinterpret_cast<const uint32_t*>(strips);
        scale_ = std::move(quantized.scale), shift_ = std::move(quantized.shift);
    }

    long rows(long M) const override { return M; }

    void multiply(long M, const void* x, const float* bias, Activation activation, void* y) override {
        static thread_local Scratch scale_memory;
        const Low* rows = static_cast<const Low*>(x);
        Low* out = static_cast<Low*>(y);
        float* scale = scale_memory.get<float>(M);
        auto left = [&](long row, long count, uint32_t* strip) {
            static thread_local Scratch memory;
            uint8_t* bytes = memory.get<uint8_t>(STRIP_ROWS * K_);
            for (long r = 0; r < count; r++) scale[row + r] = quantize(rows + (row + r) * K_, K_, bytes + r * K_);
            pack_transposed(bytes, K_, count, K_, strip, STRIP_ROWS);
        };
        strips_product<uint8_t>(M, N_, K_, left, strips_, [&](long row, long column, Ints sums) {
            const Mask m = first(N_ - column);
            const Vec value = dequantize(sums, load(shift_.data() + column, m), load(scale_.data() + column, m), scale[row]);
            store(out + row * N_ + column, apply(activation, value + load(bias + column, m)), m);
        });
    }

private:
    const long K_, N_;
    const uint32_t* strips_;
    std::vector<float> scale_;
    std::vector<int32_t> shift_;
};
#endif

}  // namespace

std::unique_ptr<PackedWeight> pack_in_strips(Kind kind, const PlainWeight& weight, Arena& arena) {
#ifdef __AVX512VNNI__
    if (kind == Kind::int8) return std::make_unique<ByteStripsWeight>(weight, arena);
#endif
#ifdef __AVX512BF16__
    if (kind == Kind::bf16) return std::make_unique<StripsWeight<bf16>>(weight, arena);
#endif
    if (kind != Kind::f32) throw std::invalid_argument("this processor has no such products");
    return std::make_unique<StripsWeight<float>>(weight, arena);
}

}  // namespace ernie
