// Products by oneDNN.  Making a oneDNN primitive takes half a millisecond, so each is made once for its shape and kept.
#include "product.h"

#include <list>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "onednn.h"

namespace ernie {
namespace {

void check(int status, const char* what) {
    if (status != dnnl_success) throw std::runtime_error(std::string("oneDNN: ") + what + " failed with status " + std::to_string(status));
}

struct Device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Device() {
        check(dnnl_engine_create(&engine, dnnl_cpu, 0), "making an engine");
        check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "making a stream");
    }
};
Device& device() {
    static thread_local Device one;
    return one;
}

struct Description {
    dnnl_memory_desc_t handle;
    Description(long rows, long columns, int type, long stride, bool transposed) {
        int64_t dims[2] = {rows, columns}, strides[2] = {transposed ? 1 : stride, transposed ? stride : 1};
        // A single row whose strides look transposed makes oneDNN compute nothing.
        if (rows == 1) strides[0] = columns * strides[1];
        check(dnnl_memory_desc_create_with_strides(&handle, 2, dims, type, strides), "describing a matrix");
    }
    ~Description() { dnnl_memory_desc_destroy(handle); }
};

class Primitive {
public:
    Primitive(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, bool bias, long ldc, bool add) {
        Description a(M, K, int(in), A.stride, A.transposed), b(K, N, int(in), B.stride, B.transposed);
        Description c(M, N, int(out), ldc, false), d(1, N, dnnl_f32, N, false);
        dnnl_primitive_attr_t attributes;
        check(dnnl_primitive_attr_create(&attributes), "making attributes");
        if (add) {
            dnnl_post_ops_t after;
            check(dnnl_post_ops_create(&after), "making a sum");
            check(dnnl_post_ops_append_sum(after, 1.f, 0, 0), "making a sum");
            check(dnnl_primitive_attr_set_post_ops(attributes, after), "making a sum");
            dnnl_post_ops_destroy(after);
        }
        dnnl_primitive_desc_t description;
        check(dnnl_matmul_primitive_desc_create(&description, device().engine, a.handle, b.handle, bias ? d.handle : nullptr, c.handle, attributes),
              "describing a product");
        dnnl_primitive_attr_destroy(attributes);
        check(dnnl_primitive_create(&primitive_, description), "making a product");
        dnnl_primitive_desc_destroy(description);
        const Description* all[4] = {&a, &b, &c, &d};
        for (int i = 0; i < 4; i++) check(dnnl_memory_create(&memory_[i], all[i]->handle, device().engine, nullptr), "making a matrix");
    }
    Primitive(const Primitive&) = delete;
    ~Primitive() {
        for (auto memory : memory_) dnnl_memory_destroy(memory);
        dnnl_primitive_destroy(primitive_);
    }
    void run(const void* A, const void* B, const float* bias, void* C) {
        const void* data[4] = {A, B, C, bias};
        for (int i = 0; i < 4; i++) dnnl_memory_set_data_handle(memory_[i], const_cast<void*>(data[i]));
        dnnl_exec_arg_t arguments[4] = {{DNNL_ARG_SRC, memory_[0]}, {DNNL_ARG_WEIGHTS, memory_[1]}, {DNNL_ARG_DST, memory_[2]}, {DNNL_ARG_BIAS, memory_[3]}};
        check(dnnl_primitive_execute(primitive_, device().stream, bias ? 4 : 3, arguments), "a product");
        check(dnnl_stream_wait(device().stream), "a product");
    }

private:
    dnnl_primitive_t primitive_;
    dnnl_memory_t memory_[4];
};

typedef std::tuple<int, int, long, long, long, long, bool, long, bool, bool, long, bool> Key;

// The primitives used last, so that batches of ever new sizes do not fill the memory with machine code.
class Cache {
public:
    Primitive& get(const Key& key, Type in, Type out, long M, long N, long K, Matrix A, Matrix B, bool bias, long ldc, bool add) {
        auto found = index_.find(key);
        if (found != index_.end()) {
            used_.splice(used_.begin(), used_, found->second);
            return found->second->second;
        }
        if (used_.size() >= 512) {
            index_.erase(used_.back().first);
            used_.pop_back();
        }
        used_.emplace_front(std::piecewise_construct, std::forward_as_tuple(key), std::forward_as_tuple(in, out, M, N, K, A, B, bias, ldc, add));
        index_[key] = used_.begin();
        return used_.front().second;
    }

private:
    std::list<std::pair<Key, Primitive>> used_;
    std::map<Key, std::list<std::pair<Key, Primitive>>::iterator> index_;
};

}  // namespace

void product(Type in, Type out, long M, long N, long K, Matrix A, Matrix B, const float* bias, void* C, long ldc, bool add) {
    static thread_local Cache cache;
    Key key{int(in), int(out), M, N, K, A.stride, A.transposed, B.stride, B.transposed, bias != nullptr, ldc, add};
    cache.get(key, in, out, M, N, K, A, B, bias != nullptr, ldc, add).run(A.data, B.data, bias, C);
}

}  // namespace ernie
