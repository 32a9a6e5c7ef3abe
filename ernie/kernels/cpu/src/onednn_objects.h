// RAII wrappers around oneDNN's objects.
#pragma once
#include "onednn.h"

namespace ernie {

void check(int status, const char* what);

struct Device {
    dnnl_engine_t engine;  // shared, so that one thread can run products created by another
    dnnl_stream_t stream;
    Device();
};
Device& device();  // one per thread

// The threads that OpenMP really grants to this thread now, which oneDNN sees while this object lives.
//
// oneDNN splits a product between as many threads as omp_get_max_threads() says and leaves the parts of those that it does not
// get uncomputed.  A thread limit, dynamic teams and nested regions all grant fewer.
class GrantedThreads {
public:
    GrantedThreads();
    ~GrantedThreads();
    GrantedThreads(const GrantedThreads&) = delete;
    int count() const { return count_; }

private:
    const int threads_before_, dynamic_before_;
    int count_;
};

// A matrix in memory: `stride` elements from row to row; `transposed` if it holds the transpose.
struct Description {
    dnnl_memory_desc_t handle;
    Description(long rows, long columns, int type, long stride, bool transposed);
    ~Description();
    Description(const Description&) = delete;
};

// A matrix product with these descriptions; it may add to C.  It runs with as many threads as it was made for: `run` throws
// if there are others.
class Multiplication {
public:
    Multiplication(const GrantedThreads&, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b, const_dnnl_memory_desc_t c, bool bias, long N, bool add);
    // A (M, K) and C (M, N) in row-major order, B in a layout of its own.
    Multiplication(const GrantedThreads&, int in, int out, long M, long N, long K, const_dnnl_memory_desc_t b);
    Multiplication(const Multiplication&) = delete;
    ~Multiplication();
    void run(const GrantedThreads&, const void* A, const void* B, const float* bias, void* C);
    void run(const GrantedThreads&, const void* A, dnnl_memory_t B, const float* bias, void* C);

private:
    void make(const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b, const_dnnl_memory_desc_t c, bool bias, long N, bool add);
    const int threads_;
    dnnl_primitive_t primitive_ = nullptr;
    dnnl_memory_t a_ = nullptr, b_ = nullptr, c_ = nullptr, bias_ = nullptr;
};

// The layout of B (K, N) in which a product with M rows is fastest; the caller destroys it.
dnnl_memory_desc_t best_layout(int in, int weights, int out, long M, long N, long K);
// Copies a matrix (rows, columns) into memory of another layout or type.
void reorder(const void* source, int type, long rows, long columns, const_dnnl_memory_desc_t layout, dnnl_memory_t to);

}  // namespace ernie
