// Weights in strips: each product reads them from memory once, whatever the number of rows.
#include <stdexcept>

#include "packed.h"
#include "tiles.h"

namespace ernie {
namespace {

// The words of a strip along K.
template <class E>
long strip_words(long K) {
    return in_tiles<E>() ? tile_words<E>(K) : packed_rows<E>(K);
}

// Memory for the strips of a matrix (K, N), filled with zeros.
template <class E>
uint32_t* empty_strips(long K, long N, Arena& arena) {
    const size_t count = size_t((in_tiles<E>() ? tile_strips(N) : (N + STRIP - 1) / STRIP) * STRIP * strip_words<E>(K));
    uint32_t* strips = static_cast<uint32_t*>(arena.get(count * sizeof(uint32_t)));
    std::fill(strips, strips + count, 0u);
    return strips;
}

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
        uint32_t* strips = empty_strips<E>(K_, N_, arena);
        for (long n = 0; n < N_; n += STRIP)
            pack(values.data() + n, N_, K_, std::min(STRIP, N_ - n), words_of<E>(strips + n * strip_words<E>(K_)), STRIP);
        strips_ = strips;
    }

    long rows(long M) const override { return in_tiles<E>() ? round_up(M, TILE) : M; }

    void multiply(long M, const void* x, const float* bias, Activation activation, void* y) override {
        const E* rows = static_cast<const E*>(x);
        E* out = static_cast<E*>(y);
        const auto finish = [&](long row, long column, Vec sums) {
            const Mask m = first(N_ - column);
            store(out + row * N_ + column, apply(activation, sums + load(bias + column, m)), m);
        };
        if constexpr (!std::is_same_v<E, float>)
            if (in_tiles<E>()) {
                static thread_local Scratch memory;
                const long words = strip_words<E>(K_), width = words * Pairing<E>::STEP;
                return tiles_product(M, N_, width == K_ ? rows : widened(rows, M, width, memory), width * sizeof(E), strips_, words, finish);
            }
        auto left = [&](long row, long count, uint32_t* strip) { pack_transposed(rows + row * K_, K_, count, K_, words_of<E>(strip), STRIP_ROWS); };
        strips_product<E>(M, N_, K_, left, strips_, finish);
    }

private:
    // Rows of `width` elements, those beyond K zero.
    const E* widened(const E* rows, long M, long width, Scratch& memory) const {
        E* wide = memory.get<E>(round_up(M, TILE) * width);
        for (long m = 0; m < M; m++) {
            std::copy(rows + m * K_, rows + (m + 1) * K_, wide + m * width);
            std::fill(wide + m * width + K_, wide + (m + 1) * width, E());
        }
        return wide;
    }

    const long K_, N_;
    const uint32_t* strips_;
};

#ifdef __AVX512VNNI__
// An int8 weight, multiplied by rows of type Low, which are quantized on the way.
class ByteStripsWeight : public PackedWeight {
public:
    ByteStripsWeight(const PlainWeight& weight, Arena& arena) : K_(weight.K), N_(weight.columns()) {
        QuantizedWeight quantized(weight);
        const long words = strip_words<uint8_t>(K_);
        int8_t* strips = reinterpret_cast<int8_t*>(empty_strips<uint8_t>(K_, N_, arena));
        for (long k = 0; k < K_; k++)
            for (long n = 0; n < N_; n++) strips[((n / STRIP * words + k / 4) * STRIP + n % STRIP) * 4 + k % 4] = quantized.integers[size_t(k * N_ + n)];
        strips_ = reinterpret_cast<const uint32_t*>(strips);
        scale_ = std::move(quantized.scale), shift_ = std::move(quantized.shift);
    }

    long rows(long M) const override { return in_tiles<uint8_t>() ? round_up(M, TILE) : M; }

    void multiply(long M, const void* x, const float* bias, Activation activation, void* y) override {
        static thread_local Scratch scale_memory;
        const Low* rows = static_cast<const Low*>(x);
        Low* out = static_cast<Low*>(y);
        float* scale = scale_memory.get<float>(M);
        const auto finish = [&](long row, long column, Ints sums) {
            const Mask m = first(N_ - column);
            const Vec value = dequantize(sums, load(shift_.data() + column, m), load(scale_.data() + column, m), scale[row]);
            store(out + row * N_ + column, apply(activation, value + load(bias + column, m)), m);
        };
        if (in_tiles<uint8_t>()) {
            static thread_local Scratch memory;
            const long words = strip_words<uint8_t>(K_), width = words * 4;
            uint8_t* bytes = memory.get<uint8_t>(round_up(M, TILE) * width);
#pragma omp parallel for schedule(static) if (M > TILE)
            for (long m = 0; m < M; m++) {
                scale[m] = quantize(rows + m * K_, K_, bytes + m * width);
                std::fill(bytes + m * width + K_, bytes + (m + 1) * width, uint8_t(0));
            }
            return tiles_product(M, N_, bytes, width, strips_, words, finish);
        }
        auto left = [&](long row, long count, uint32_t* strip) {
            static thread_local Scratch memory;
            uint8_t* bytes = memory.get<uint8_t>(STRIP_ROWS * K_);
            for (long r = 0; r < count; r++) scale[row + r] = quantize(rows + (row + r) * K_, K_, bytes + r * K_);
            pack_transposed(bytes, K_, count, K_, strip, STRIP_ROWS);
        };
        strips_product<uint8_t>(M, N_, K_, left, strips_, finish);
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
