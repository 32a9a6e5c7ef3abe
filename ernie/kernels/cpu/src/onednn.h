// The few functions of oneDNN's C interface that are used here (oneDNN 3.x, documentation "C API reference").
//
// Declared here because Paddle's wheel contains the library, libdnnl.so.3, but no usable headers.  The process loads it
// before this library, so nothing is linked.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
typedef struct dnnl_engine* dnnl_engine_t;
typedef struct dnnl_stream* dnnl_stream_t;
typedef struct dnnl_memory* dnnl_memory_t;
typedef struct dnnl_memory_desc* dnnl_memory_desc_t;
typedef const struct dnnl_memory_desc* const_dnnl_memory_desc_t;
typedef struct dnnl_primitive* dnnl_primitive_t;
typedef struct dnnl_primitive_desc* dnnl_primitive_desc_t;
typedef struct dnnl_primitive_attr* dnnl_primitive_attr_t;
typedef struct dnnl_post_ops* dnnl_post_ops_t;
typedef struct {
    int arg;
    dnnl_memory_t memory;
} dnnl_exec_arg_t;

enum { dnnl_success = 0 };
enum { dnnl_cpu = 1 };
enum { dnnl_stream_default_flags = 1 };
enum { dnnl_bf16 = 2, dnnl_f32 = 3, dnnl_s32 = 4, dnnl_s8 = 5, dnnl_u8 = 6 };
enum { dnnl_format_tag_any = 1 };
enum { dnnl_query_weights_md = 131 };
enum { DNNL_ARG_SRC = 1, DNNL_ARG_DST = 17, DNNL_ARG_WEIGHTS = 33, DNNL_ARG_BIAS = 41 };

int dnnl_set_primitive_cache_capacity(int primitives);
int dnnl_engine_create(dnnl_engine_t*, int kind, size_t index);
int dnnl_stream_create(dnnl_stream_t*, dnnl_engine_t, unsigned flags);
int dnnl_stream_wait(dnnl_stream_t);
int dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t*, int ndims, const int64_t* dims, int type, const int64_t* strides);
int dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t*, int ndims, const int64_t* dims, int type, int tag);
int dnnl_memory_desc_clone(dnnl_memory_desc_t*, const_dnnl_memory_desc_t);
int dnnl_memory_desc_destroy(dnnl_memory_desc_t);
size_t dnnl_memory_desc_get_size(const_dnnl_memory_desc_t);
int dnnl_memory_create(dnnl_memory_t*, const_dnnl_memory_desc_t, dnnl_engine_t, void* handle);
int dnnl_memory_set_data_handle(dnnl_memory_t, void* handle);
int dnnl_memory_destroy(dnnl_memory_t);
int dnnl_post_ops_create(dnnl_post_ops_t*);
int dnnl_post_ops_append_sum(dnnl_post_ops_t, float scale, int32_t zero_point, int type);
int dnnl_post_ops_destroy(dnnl_post_ops_t);
int dnnl_primitive_attr_create(dnnl_primitive_attr_t*);
int dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t, const struct dnnl_post_ops*);
int dnnl_primitive_attr_destroy(dnnl_primitive_attr_t);
int dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t*, dnnl_engine_t, const_dnnl_memory_desc_t src,
                                      const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
                                      const_dnnl_memory_desc_t dst, const struct dnnl_primitive_attr*);
int dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t*, const_dnnl_memory_desc_t src, dnnl_engine_t,
                                       const_dnnl_memory_desc_t dst, dnnl_engine_t, const struct dnnl_primitive_attr*);
const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(const struct dnnl_primitive_desc*, int what, int index);
int dnnl_primitive_desc_destroy(dnnl_primitive_desc_t);
int dnnl_primitive_create(dnnl_primitive_t*, const struct dnnl_primitive_desc*);
int dnnl_primitive_execute(const struct dnnl_primitive*, dnnl_stream_t, int count, const dnnl_exec_arg_t*);
int dnnl_primitive_destroy(dnnl_primitive_t);
}
