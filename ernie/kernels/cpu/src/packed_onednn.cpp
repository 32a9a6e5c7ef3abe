// int8 weights packed by oneDNN, for processors without instructions for products of bytes (VNNI).
#include <list>
#include <map>
#include <utility>

#include "onednn.h"
#include "onednn_objects.h"
#include "packed.h"
#include "threads.h"

namespace ernie {
namespace {

class OnednnWeight : public PackedWeight {
public:
    OnednnWeight(const PlainWeight& weight, Arena& arena) : K_(weight.K), N_(weight.columns()), quantized_(weight) {
        constexpr long ROWS = 512;  // the layout is optimized for this number of rows, but works for others
        layout_ = best_layout(dnnl_u8, dnnl_s8, dnnl_s32, ROWS, N_, K_);
        void* data = arena.get(dnnl_memory_desc_get_size(layout_));
        check(dnnl_memory_create(&memory_, layout_, device().engine, data), "making a weight");
        reorder(quantized_.integers.data(), dnnl_s8, K_, N_, layout_, memory_);
        quantized_.integers = {};
    }

    ~OnednnWeight() override {
        dnnl_memory_destroy(memory_);
        dnnl_memory_desc_destroy(layout_);
    }

    // Rounded up so that few shapes occur, but not by much if there are few rows.
    long rows(long M) const override { return round_up(M, M <= 64 ? 8 : 32); }

    void multiply(long M, const void* x, const float* bias, Activation activation, void* y) override {
        const long P = rows(M);
        Pool<Products>::Loan products(products_);
        const GrantedThreads threads;
        uint8_t* bytes = products->scratch[0].get<uint8_t>(P * K_);
        float* scale = products->scratch[1].get<float>(P);
        int32_t* sums = products->scratch[2].get<int32_t>(P * N_);
        const Low* rows = static_cast<const Low*>(x);
#pragma omp parallel for schedule(static)
        for (long t = 0; t < P; t++) scale[t] = quantize(rows + t * K_, K_, bytes + t * K_);
        product(*products, threads, P).run(threads, bytes, memory_, nullptr, sums);
        Low* out = static_cast<Low*>(y);
#pragma omp parallel for schedule(static)
        for (long t = 0; t < P; t++)
            for (long i = 0; i < N_; i += LANES) {
                const Mask m = first(N_ - i);
                const Vec value = dequantize(load(sums + t * N_ + i, m), load(quantized_.shift.data() + i, m),
                                             load(quantized_.scale.data() + i, m), scale[t]);
                store(out + t * N_ + i, apply(activation, value + load(bias + i, m)), m);
            }
    }

private:
    typedef std::pair<int, long> Key;  // number of threads, number of rows
    typedef std::list<std::pair<Key, Multiplication>> List;
    // The products of one caller, the most recently used one first, and its scratch memory.
    struct Products {
        List used;
        std::map<Key, List::iterator> index;
        Scratch scratch[3];
    };

    // Returns a cached product; the least recently used one is evicted.
    Multiplication& product(Products& own, const GrantedThreads& threads, long M) {
        const Key key{threads.count(), M};
        auto found = own.index.find(key);
        if (found != own.index.end()) {
            own.used.splice(own.used.begin(), own.used, found->second);
            return own.used.front().second;
        }
        constexpr size_t MOST = 64;
        if (own.used.size() >= MOST) {
            own.index.erase(own.used.back().first);
            own.used.pop_back();
        }
        own.used.emplace_front(std::piecewise_construct, std::forward_as_tuple(key),
                               std::forward_as_tuple(threads, int(dnnl_u8), int(dnnl_s32), M, N_, K_, layout_));
        own.index.emplace(key, own.used.begin());
        return own.used.front().second;
    }

    const long K_, N_;
    QuantizedWeight quantized_;
    dnnl_memory_desc_t layout_ = nullptr;
    dnnl_memory_t memory_ = nullptr;
    Pool<Products> products_;
};

}  // namespace

std::unique_ptr<PackedWeight> pack_for_onednn(const PlainWeight& weight, Arena& arena) { return std::make_unique<OnednnWeight>(weight, arena); }

}  // namespace ernie
