// Products by oneDNN.  Creating a oneDNN primitive takes half a millisecond, so each is cached by its shape.
#include "product.h"

#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <tuple>

#include "onednn_objects.h"
#include "threads.h"

namespace ernie {
namespace {

typedef std::tuple<int, int, int, long, long, long, long, bool, long, bool, bool, long, bool> Key;

// An LRU cache: batches of ever new sizes must not fill the memory with machine code.
class Cache {
public:
    template <class Make>
    Multiplication& get(const Key& key, const Make& make) {
        auto found = index_.find(key);
        if (found != index_.end()) {
            used_.splice(used_.begin(), used_, found->second);
            return *found->second->second;
        }
        if (used_.size() >= 512) {
            index_.erase(used_.back().first);
            used_.pop_back();
        }
        used_.emplace_front(key, make());
        index_[key] = used_.begin();
        return *used_.front().second;
    }

private:
    typedef std::list<std::pair<Key, std::unique_ptr<Multiplication>>> List;
    List used_;
    std::map<Key, List::iterator> index_;
};

void multiply(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add) {
    static thread_local Cache cache;
    const GrantedThreads threads;
    Key key{threads.count(), int(in), int(out), M, N, K, A.stride, A.transposed, B.stride, B.transposed, bias != nullptr, ldc, add};
    Multiplication& found = cache.get(key, [&] {
        Description a(M, K, int(in), A.stride, A.transposed), b(K, N, int(in), B.stride, B.transposed), c(M, N, int(out), ldc, false);
        return std::make_unique<Multiplication>(threads, a.handle, b.handle, c.handle, bias != nullptr, N, add, 0);
    });
    found.run(threads, A.data, B.data, bias, C);
}

#ifndef __AVX512F__
// With AVX2 oneDNN splits K between its threads if C is small, so that sums would depend on their number.  Here C is split
// instead, into tiles that are the same for any number of threads, each of which one thread computes.
void multiply_in_tiles(long M, long N, long K, Matrix A, Matrix B, const float* bias, float* C, long ldc, bool add) {
    const auto tile = [](long length, long other) { return length < other ? 512 : length > 512 ? 256 : 128; };
    const long rows = tile(M, N), columns = tile(N, M + 1), across = (N + columns - 1) / columns, tiles = (M + rows - 1) / rows * across;
    const float *a = static_cast<const float*>(A.data), *b = static_cast<const float*>(B.data);
#pragma omp parallel if (tiles > 1)
    {
        const int threads = omp_get_max_threads();
        omp_set_num_threads(1);  // for oneDNN in this thread
#pragma omp for schedule(static)
        for (long t = 0; t < tiles; t++) {
            const long m = t / across * rows, n = t % across * columns;
            const Matrix left{a + m * (A.transposed ? 1 : A.stride), A.stride, A.transposed};
            const Matrix right{b + n * (B.transposed ? B.stride : 1), B.stride, B.transposed};
            const float* tile_bias = bias ? bias + n : nullptr;
            multiply(Type::f32, Type::f32, std::min(rows, M - m), std::min(columns, N - n), K, left, right, tile_bias, C + m * ldc + n, ldc, add);
        }
        omp_set_num_threads(threads);
    }
}
#endif

}  // namespace

void product(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add) {
    if (M == 0 || N == 0) return;
    if (K == 0) {  // an empty sum, which oneDNN would not write
        if (add) return;
        const long size = out == Type::f32 ? 4 : 2;
        for (long m = 0; m < M; m++) {
            char* row = static_cast<char*>(C) + m * ldc * size;
            std::memset(row, 0, N * size);
            if (bias) std::memcpy(row, bias, N * size);  // only for float outputs
        }
        return;
    }
#ifdef __AVX512F__
    multiply(in, out, M, N, K, A, B, bias, C, ldc, add);
#else
    multiply_in_tiles(M, N, K, A, B, bias, static_cast<float*>(C), ldc, add);
#endif
}

}  // namespace ernie
