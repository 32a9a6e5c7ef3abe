// Products by oneDNN where it has the better instructions, and by blocked_product where it does not.
#include "product.h"

#include <cstring>

#include "blocked_product.h"
#include "row_product.h"
#include "threads.h"

#ifdef __AVX512F__
#include <list>
#include <map>
#include <memory>
#include <tuple>

#include "onednn_objects.h"
#endif

namespace ernie {
namespace {

#ifdef __AVX512F__
typedef std::tuple<int, int, int, long, long, long, long, bool, long, bool, bool, long, bool> Key;

// Creating a oneDNN primitive takes half a millisecond, so each is cached by its shape.  An LRU cache: batches of ever new sizes must
// not fill the memory with machine code.
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
        return std::make_unique<Multiplication>(threads, a.handle, b.handle, c.handle, bias != nullptr, N, add);
    });
    found.run(threads, A.data, B.data, bias, C);
}

// C in tiles of ALONE rows, each of which one thread computes: no sum depends on the number of rows or threads.
void multiply_in_tiles(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add) {
    const auto size = [](Type type) { return type == Type::f32 ? 4L : 2L; };
    const auto from = [&](Matrix matrix, long first) {
        return Matrix{static_cast<const char*>(matrix.data) + first * size(in), matrix.stride, matrix.transposed};
    };
    const long columns = N > 512 ? 256 : 128, across = (N + columns - 1) / columns, tiles = (M + ALONE - 1) / ALONE * across;
#pragma omp parallel if (tiles > 1)
    {
        const int threads = omp_get_max_threads();
        omp_set_num_threads(1);  // for oneDNN in this thread
#pragma omp for schedule(static)
        for (long t = 0; t < tiles; t++) {
            const long m = t / across * ALONE, n = t % across * columns;
            const Matrix left = from(A, m * (A.transposed ? 1 : A.stride)), right = from(B, n * (B.transposed ? B.stride : 1));
            multiply(in, out, std::min(ALONE, M - m), std::min(columns, N - n), K, left, right, bias ? bias + n : nullptr,
                     static_cast<char*>(C) + (m * ldc + n) * size(out), ldc, add);
        }
        omp_set_num_threads(threads);
    }
}
#endif

}  // namespace

void product(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add,
             bool alone) {
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
    if (alone && in == Type::f32 && out == Type::f32 && !A.transposed)
        return row_product(M, N, K, static_cast<const float*>(A.data), A.stride, static_cast<const float*>(B.data), B.stride, B.transposed,
                           bias, static_cast<float*>(C), ldc, add);
#ifdef __AVX512F__
    if (alone) return multiply_in_tiles(in, out, M, N, K, A, B, bias, C, ldc, add);
    multiply(in, out, M, N, K, A, B, bias, C, ldc, add);
#else  // only float: oneDNN takes up to three times as long, and splits K between its threads if C is small
    blocked_product(M, N, K, A, B, bias, static_cast<float*>(C), ldc, add);
#endif
}

}  // namespace ernie
