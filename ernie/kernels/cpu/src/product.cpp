// Products by oneDNN.  Making a oneDNN primitive takes half a millisecond, so each is made once for its shape and kept.
#include "product.h"

#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <tuple>

#include "onednn_objects.h"

namespace ernie {
namespace {

typedef std::tuple<int, int, long, long, long, long, bool, long, bool, bool, long, bool> Key;

// The products used last, so that batches of ever new sizes do not fill the memory with machine code.
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

}  // namespace

void product(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add) {
    if (M == 0 || N == 0) return;
    if (K == 0) {  // a sum of nothing, which oneDNN would not write
        if (add) return;
        const long size = out == Type::f32 ? 4 : 2;
        for (long m = 0; m < M; m++) {
            char* row = static_cast<char*>(C) + m * ldc * size;
            std::memset(row, 0, N * size);
            if (bias) std::memcpy(row, bias, N * size);  // only of products in float
        }
        return;
    }
    static thread_local Cache cache;
    Key key{int(in), int(out), M, N, K, A.stride, A.transposed, B.stride, B.transposed, bias != nullptr, ldc, add};
    Multiplication& found = cache.get(key, [&] {
        Description a(M, K, int(in), A.stride, A.transposed), b(K, N, int(in), B.stride, B.transposed), c(M, N, int(out), ldc, false);
        return std::make_unique<Multiplication>(a.handle, b.handle, c.handle, bias != nullptr, N, add, 0);
    });
    found.run(A.data, B.data, bias, C);
}

}  // namespace ernie
