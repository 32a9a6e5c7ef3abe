// RAII wrappers around oneDNN's objects.
#include "onednn_objects.h"

#include <omp.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "signals.h"

namespace ernie {

void check(int status, const char* what) {
    if (status != dnnl_success) throw std::runtime_error(std::string("oneDNN: ") + what + " failed with status " + std::to_string(status));
}

Device::Device() {
    static const dnnl_engine_t shared = [] {
        // Products are cached where they are used; oneDNN's own cache would keep a thousand more, hundreds of megabytes.
        check(dnnl_set_primitive_cache_capacity(0), "emptying its cache");
        dnnl_engine_t made;
        check(dnnl_engine_create(&made, dnnl_cpu, 0), "making an engine");
        return made;
    }();
    engine = shared;
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "making a stream");
}

Device& device() {
    static thread_local Device device;
    return device;
}

// Whether the environment limits threads: what one region is granted then depends on what other threads use at the moment.
static bool limited() {
    static const bool found = [] {
        for (const char* name : {"OMP_THREAD_LIMIT", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS", "KMP_TEAMS_THREAD_LIMIT"})
            if (std::getenv(name)) return true;
        return false;
    }();
    return found;
}

GrantedThreads::GrantedThreads() : threads_before_(omp_get_max_threads()), dynamic_before_(omp_get_dynamic()), count_(1) {
    static thread_local int asked = 1, granted = 1;  // the last time
    if (threads_before_ == 1) return;
    omp_set_dynamic(0);
    if (asked != threads_before_ || limited() || omp_in_parallel()) {
#pragma omp parallel
        {
            if (omp_get_thread_num())
                NoSignals::from_now_on();
            else
                count_ = omp_get_num_threads();
        }
        asked = omp_in_parallel() ? 1 : threads_before_, granted = count_;
    }
    count_ = granted;
    omp_set_num_threads(count_);
}

GrantedThreads::~GrantedThreads() {
    omp_set_num_threads(threads_before_);
    omp_set_dynamic(dynamic_before_);
}

Description::Description(long rows, long columns, int type, long stride, bool transposed) {
    int64_t dims[2] = {rows, columns}, strides[2] = {transposed ? 1 : stride, transposed ? stride : 1};
    // A single row whose strides look transposed makes oneDNN compute nothing.
    if (rows == 1) strides[0] = columns * strides[1];
    check(dnnl_memory_desc_create_with_strides(&handle, 2, dims, type, strides), "describing a matrix");
}

Description::~Description() { dnnl_memory_desc_destroy(handle); }

Multiplication::Multiplication(const GrantedThreads& threads, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b, const_dnnl_memory_desc_t c,
                               bool bias, long N, bool add)
    : threads_(threads.count()) {
    make(a, b, c, bias, N, add);
}

Multiplication::Multiplication(const GrantedThreads& threads, int in, int out, long M, long N, long K, const_dnnl_memory_desc_t b)
    : threads_(threads.count()) {
    Description a(M, K, in, K, false), c(M, N, out, N, false);
    make(a.handle, b, c.handle, false, N, false);
}

void Multiplication::make(const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b, const_dnnl_memory_desc_t c, bool bias, long N, bool add) {
    Description d(1, N, dnnl_f32, N, false);
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t after;
    check(dnnl_primitive_attr_create(&attributes), "making attributes");
    check(dnnl_post_ops_create(&after), "making attributes");
    if (add) check(dnnl_post_ops_append_sum(after, 1.f, 0, 0), "making a sum");
    check(dnnl_primitive_attr_set_post_ops(attributes, after), "making attributes");
    dnnl_post_ops_destroy(after);
    dnnl_primitive_desc_t description;
    check(dnnl_matmul_primitive_desc_create(&description, device().engine, a, b, bias ? d.handle : nullptr, c, attributes), "describing a product");
    dnnl_primitive_attr_destroy(attributes);
    check(dnnl_primitive_create(&primitive_, description), "making a product");
    dnnl_primitive_desc_destroy(description);
    check(dnnl_memory_create(&a_, a, device().engine, nullptr), "making a matrix");
    check(dnnl_memory_create(&b_, b, device().engine, nullptr), "making a matrix");
    check(dnnl_memory_create(&c_, c, device().engine, nullptr), "making a matrix");
    check(dnnl_memory_create(&bias_, d.handle, device().engine, nullptr), "making a matrix");
}

Multiplication::~Multiplication() {
    for (auto memory : {a_, b_, c_, bias_}) dnnl_memory_destroy(memory);
    dnnl_primitive_destroy(primitive_);
}

void Multiplication::run(const GrantedThreads& threads, const void* A, const void* B, const float* bias, void* C) {
    dnnl_memory_set_data_handle(b_, const_cast<void*>(B));
    run(threads, A, b_, bias, C);
}

void Multiplication::run(const GrantedThreads& threads, const void* A, dnnl_memory_t B, const float* bias, void* C) {
    if (threads.count() != threads_) throw std::logic_error("a product made for " + std::to_string(threads_) + " threads runs with " + std::to_string(threads.count()));
    dnnl_memory_set_data_handle(a_, const_cast<void*>(A));
    dnnl_memory_set_data_handle(c_, C);
    dnnl_memory_set_data_handle(bias_, const_cast<float*>(bias));
    dnnl_exec_arg_t arguments[4] = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, B}, {DNNL_ARG_DST, c_}, {DNNL_ARG_BIAS, bias_}};
    const NoSignals none;
    check(dnnl_primitive_execute(primitive_, device().stream, bias ? 4 : 3, arguments), "a product");
    check(dnnl_stream_wait(device().stream), "a product");
}

dnnl_memory_desc_t best_layout(int in, int weights, int out, long M, long N, long K) {
    Description a(M, K, in, K, false), c(M, N, out, N, false);
    int64_t dims[2] = {K, N};
    dnnl_memory_desc_t any, found;
    check(dnnl_memory_desc_create_with_tag(&any, 2, dims, weights, dnnl_format_tag_any), "describing a weight");
    dnnl_primitive_desc_t description;
    check(dnnl_matmul_primitive_desc_create(&description, device().engine, a.handle, any, nullptr, c.handle, nullptr), "describing a product");
    check(dnnl_memory_desc_clone(&found, dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0)), "describing a weight");
    dnnl_primitive_desc_destroy(description);
    dnnl_memory_desc_destroy(any);
    return found;
}

void reorder(const void* source, int type, long rows, long columns, const_dnnl_memory_desc_t layout, dnnl_memory_t to) {
    const GrantedThreads threads;
    Description plain(rows, columns, type, columns, false);
    dnnl_memory_t from;
    check(dnnl_memory_create(&from, plain.handle, device().engine, const_cast<void*>(source)), "making a matrix");
    dnnl_primitive_desc_t description;
    check(dnnl_reorder_primitive_desc_create(&description, plain.handle, device().engine, layout, device().engine, nullptr), "describing a copy");
    dnnl_primitive_t primitive;
    check(dnnl_primitive_create(&primitive, description), "making a copy");
    dnnl_exec_arg_t arguments[2] = {{DNNL_ARG_SRC, from}, {DNNL_ARG_DST, to}};
    check(dnnl_primitive_execute(primitive, device().stream, 2, arguments), "a copy");
    check(dnnl_stream_wait(device().stream), "a copy");
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(description);
    dnnl_memory_destroy(from);
}

}  // namespace ernie
