// Weights packed by oneDNN, the fallback: its products are fast with every instruction set.
#include <list>
#include <map>
#include <tuple>

#include "onednn.h"
#include "onednn_objects.h"
#include "packed.h"
#include "threads.h"

namespace ernie {
namespace {

class OnednnWeight : public PackedWeight {
public:
    OnednnWeight(Kind kind, const PlainWeight& weight, Arena& arena) : kind_(kind), K_(weight.K), N_(weight.columns()) {
        const bool bytes = kind == Kind::int8;
        std::vector<float> joined;
        if (bytes)
            quantized_ = std::make_unique<QuantizedWeight>(weight);
        else
            joined = weight.joined();
        constexpr long ROWS = 512;  // the layout is optimized for this number of rows, but works for others
        layout_ = best_layout(type(dnnl_u8), type(dnnl_s8), type(dnnl_s32), ROWS, N_, K_);
        void* data = arena.get(dnnl_memory_desc_get_size(layout_));
        check(dnnl_memory_create(&memory_, layout_, device().engine, data), "making a weight");
        const void* source = bytes ? static_cast<const void*>(quantized_->integers.data()) : joined.data();
        reorder(source, bytes ? dnnl_s8 : dnnl_f32, K_, N_, layout_, memory_);
        if (bytes) quantized_->integers = {};
    }

    ~OnednnWeight() override {
        dnnl_memory_destroy(memory_);
        dnnl_memory_desc_destroy(layout_);
    }

    // Rounded up so that few shapes occur, but not by much if there are few rows.
    long rows(long M, long block) const override { return round_up(M, block ? block : M <= 64 ? 8 : 32); }

    void multiply(long M, const void* x, const float* bias, Activation activation, void* y, long block) override {
        const long P = rows(M, block);
        Pool<Products>::Loan products(products_);
#ifndef __AVX512F__
        if (kind_ == Kind::f32) return multiply_in_tiles(*products, P, static_cast<const float*>(x), bias, activation, static_cast<float*>(y), block);
#endif
        // Integers are summed exactly, whatever the number of rows; floats come here only without strips.
        const GrantedThreads threads;
        if (kind_ != Kind::int8) return product(*products, threads, 0, P, bias, activation).run(threads, x, memory_, bias, y);
        uint8_t* bytes = products->scratch[0].get<uint8_t>(P * K_);
        float* scale = products->scratch[1].get<float>(P);
        int32_t* sums = products->scratch[2].get<int32_t>(P * N_);
        const Low* rows = static_cast<const Low*>(x);
#pragma omp parallel for schedule(static)
        for (long t = 0; t < P; t++) scale[t] = quantize(rows + t * K_, K_, bytes + t * K_);
        product(*products, threads, 0, P, nullptr, Activation::none).run(threads, bytes, memory_, nullptr, sums);
        Low* out = static_cast<Low*>(y);
#pragma omp parallel for schedule(static)
        for (long t = 0; t < P; t++)
            for (long i = 0; i < N_; i += LANES) {
                const Mask m = first(N_ - i);
                const Vec value = dequantize(load(sums + t * N_ + i, m), load(quantized_->shift.data() + i, m),
                                             load(quantized_->scale.data() + i, m), scale[t]);
                store(out + t * N_ + i, apply(activation, value + load(bias + i, m)), m);
            }
    }

private:
    // Number of threads, which of several that compute at once, number of rows, whether there is a bias, activation.
    typedef std::tuple<int, int, long, bool, int> Key;
    typedef std::list<std::pair<Key, Multiplication>> List;
    // The products of one caller, the most recently used one first, and its scratch memory.
    struct Products {
        List used;
        std::map<Key, List::iterator> index;
        Scratch scratch[3];
    };

    int type(int for_int8) const { return kind_ == Kind::f32 ? dnnl_f32 : kind_ == Kind::bf16 ? dnnl_bf16 : for_int8; }

#ifndef __AVX512F__
    // With AVX2 oneDNN splits K between its threads if there are few rows, so that sums would depend on their number.  Here
    // the rows are split instead, into tiles that are the same for any number of threads, each of which one thread computes.
    void multiply_in_tiles(Products& products, long P, const float* x, const float* bias, Activation activation, float* y, long block) {
        const long tile = block ? block : P <= 64 ? round_up((P + 1) / 2, 8) : P <= 512 ? 64 : 128, tiles = (P + tile - 1) / tile;
#pragma omp parallel if (tiles > 1)
        {
            const int threads = omp_get_max_threads();
            omp_set_num_threads(1);  // for oneDNN in this thread
            const GrantedThreads one;
#pragma omp for schedule(static)
            for (long t = 0; t < tiles; t++) {
                const long count = std::min(tile, P - t * tile);
                Multiplication* found;
#pragma omp critical(ernie_packed_products)
                found = &product(products, one, omp_get_thread_num(), count, bias, activation);
                found->run(one, x + t * tile * K_, memory_, bias, y + t * tile * N_);
            }
            omp_set_num_threads(threads);
        }
    }
#endif

    // Returns a cached product; the least recently used one is evicted, of those that no thread of a team may be using.
    Multiplication& product(Products& own, const GrantedThreads& threads, int thread, long M, const float* bias, Activation activation) {
        const Key key{threads.count(), thread, M, bias != nullptr, int(activation)};
        auto found = own.index.find(key);
        if (found != own.index.end()) {
            own.used.splice(own.used.begin(), own.used, found->second);
            return own.used.front().second;
        }
        if (own.used.size() >= size_t(64 + 2 * omp_get_num_threads())) {
            own.index.erase(own.used.back().first);
            own.used.pop_back();
        }
        const int function = activation == Activation::gelu ? dnnl_eltwise_gelu_erf : activation == Activation::relu ? dnnl_eltwise_relu : 0;
        own.used.emplace_front(std::piecewise_construct, std::forward_as_tuple(key),
                               std::forward_as_tuple(threads, type(dnnl_u8), type(dnnl_s32), M, N_, K_, layout_, bias != nullptr, function));
        own.index.emplace(key, own.used.begin());
        return own.used.front().second;
    }

    const Kind kind_;
    const long K_, N_;
    std::unique_ptr<QuantizedWeight> quantized_;
    dnnl_memory_desc_t layout_ = nullptr;
    dnnl_memory_t memory_ = nullptr;
    Pool<Products> products_;
};

}  // namespace

std::unique_ptr<PackedWeight> pack_for_onednn(Kind kind, const PlainWeight& weight, Arena& arena) {
    return std::make_unique<OnednnWeight>(kind, weight, arena);
}

}  // namespace ernie
