// Weights laid out by oneDNN, and products of bytes: per-token scales for inputs, one scale a column for weights.
//
// oneDNN multiplies unsigned inputs with signed weights fastest.  Inputs are therefore shifted by 128, which adds 128
// times the sum of a weight's column to each result and is taken off again afterwards.
#include "packed.h"

#include <list>
#include <map>
#include <tuple>

#include "onednn.h"
#include "onednn_objects.h"
#include "threads.h"

namespace ernie {
namespace {

int input_type(Kind kind) { return kind == Kind::f32 ? dnnl_f32 : kind == Kind::bf16 ? dnnl_bf16 : dnnl_u8; }
int weight_type(Kind kind) { return kind == Kind::int8 ? dnnl_s8 : input_type(kind); }
int output_type(Kind kind) { return kind == Kind::int8 ? dnnl_s32 : input_type(kind); }

}  // namespace

struct PackedWeight::Layout {
    dnnl_memory_desc_t description = nullptr;
    dnnl_memory_t memory = nullptr;
    // Products by number of rows, the ones used last.
    typedef std::tuple<long, bool, int> Key;
    std::list<std::pair<Key, Multiplication>> used;
    std::map<Key, std::list<std::pair<Key, Multiplication>>::iterator> index;

    ~Layout() {
        dnnl_memory_destroy(memory);
        dnnl_memory_desc_destroy(description);
    }
};

PackedWeight::PackedWeight(Kind kind_, long K_, const std::vector<const float*>& parts, const std::vector<long>& widths)
    : K(K_), N([&] { long n = 0; for (long w : widths) n += w; return n; }()), kind(kind_), layout_(new Layout) {
    std::vector<float> joined(size_t(K * N));
    long from = 0;
    for (size_t p = 0; p < parts.size(); p++) {
        for (long k = 0; k < K; k++) std::copy(parts[p] + k * widths[p], parts[p] + (k + 1) * widths[p], joined.data() + k * N + from);
        from += widths[p];
    }
    std::vector<int8_t> integers;
    if (kind == Kind::int8) {
        scale.assign(size_t(N), 0.f), shift.assign(size_t(N), 0), integers.resize(joined.size());
        for (long i = 0; i < K * N; i++) scale[size_t(i % N)] = std::max(scale[size_t(i % N)], std::fabs(joined[size_t(i)]));
        for (float& s : scale) s = s > 0 ? s / 127.f : 1.f;
        for (long i = 0; i < K * N; i++) {
            int value = int(std::lrintf(joined[size_t(i)] / scale[size_t(i % N)]));
            integers[size_t(i)] = int8_t(value);
            shift[size_t(i % N)] += 128 * value;
        }
    }
    constexpr long ROWS = 512;  // the number of rows that the layout is made for; others can use it too
    layout_->description = best_layout(input_type(kind), weight_type(kind), output_type(kind), ROWS, N, K);
    data_ = std::aligned_alloc(64, size_t(round_up(long(dnnl_memory_desc_get_size(layout_->description)), 64)));
    if (!data_) throw std::bad_alloc();
    check(dnnl_memory_create(&layout_->memory, layout_->description, device().engine, data_), "making a weight");
    const void* source = kind == Kind::int8 ? static_cast<const void*>(integers.data()) : joined.data();
    reorder(source, kind == Kind::int8 ? dnnl_s8 : dnnl_f32, K, N, layout_->description, layout_->memory);
}

PackedWeight::~PackedWeight() {
    layout_.reset();
    std::free(data_);
}

void PackedWeight::multiply(long M, const void* A, const float* bias, Activation activation, void* C) const {
    Layout& layout = *layout_;
    Layout::Key key{M, bias != nullptr, int(activation)};
    auto found = layout.index.find(key);
    if (found == layout.index.end()) {
        if (layout.used.size() >= 64) {
            layout.index.erase(layout.used.back().first);
            layout.used.pop_back();
        }
        layout.used.emplace_front(std::piecewise_construct, std::forward_as_tuple(key),
                                  std::forward_as_tuple(input_type(kind), output_type(kind), M, N, K, layout.description, bias != nullptr,
                                                        activation == Activation::gelu ? dnnl_eltwise_gelu_erf
                                                        : activation == Activation::relu ? dnnl_eltwise_relu
                                                                                         : 0));
        found = layout.index.emplace(key, layout.used.begin()).first;
    } else {
        layout.used.splice(layout.used.begin(), layout.used, found->second);
    }
    found->second->second.run(A, layout.memory, bias, C);
}

template <class E>
void quantize(const E* x, long T, long N, uint8_t* bytes, float* scale) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++) {
        const E* row = x + t * N;
        Vec highest = zero();
        for (long i = 0; i < N; i += LANES) highest = max(highest, abs(load(row + i, first(N - i))));
        const float top = maximum(highest);
        scale[t] = top > 0 ? top / 127.f : 1.f;
        const Vec inverse = all(1.f / scale[t]);
        for (long i = 0; i < N; i += LANES) {
            Mask m = first(N - i);
            store_bytes(bytes + t * N + i, to_integers(load(row + i, m) * inverse) + all(128u), N - i);
        }
    }
}

template <class E>
void dequantize(const int32_t* sums, const PackedWeight& w, const float* scale, const float* bias, Activation activation, long T, E* y) {
    const long N = w.N;
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++)
        for (long i = 0; i < N; i += LANES) {
            Mask m = first(N - i);
            Vec sum = to_floats(load(sums + t * N + i, m) - load(w.shift.data() + i, m));
            Vec value = fma(sum * load(w.scale.data() + i, m), all(scale[t]), load(bias + i, m));
            store(y + t * N + i, apply(activation, value), m);
        }
}

#define INSTANTIATE(E)                                                   \
    template void quantize<E>(const E*, long, long, uint8_t*, float*);   \
    template void dequantize<E>(const int32_t*, const PackedWeight&, const float*, const float*, Activation, long, E*);
INSTANTIATE(float)
#ifdef __AVX512BF16__
INSTANTIATE(bf16)
#endif

}  // namespace ernie
