// The C interface for Python (ernie/kernels/cpu/library.py).
//
// `low` selects bfloat16 as the type E of a kernel.  Each function returns null, or a message if it fails.
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>

#include "adamw.h"
#include "copy.h"
#include "dilated.h"
#include "embedding.h"
#include "fingerprint.h"
#include "gaussian.h"
#include "inference.h"
#include "layer.h"
#include "onednn_objects.h"
#include "peak.h"
#include "product.h"
#include "recurrent.h"
#include "rows.h"
#include "sampling.h"
#include "threads.h"
#include "trial.h"
#include "vocabulary.h"

using namespace ernie;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<int> wanted_threads{0};  // what ernie_kernels_threads was last called with

// OpenMP keeps the number of threads and whether teams are dynamic for each calling thread apart.
void prepare_thread() {
    static thread_local int prepared = 0;
    const int wanted = wanted_threads;
    if (prepared == wanted) return;
    omp_set_num_threads(wanted);
    omp_set_dynamic(0);
    prepared = wanted;
}

template <class Body>
const char* guarded(const Body& body) {
    static thread_local std::string message;
    try {
        prepare_thread();
        body();
        return nullptr;
    } catch (const std::exception& error) {
        message = error.what();
    }
    return message.c_str();
}

#ifdef __AVX512BF16__
#define IN_TYPE(low, call)                   \
    if (low) {                               \
        typedef bf16 E;                      \
        call;                                \
    } else {                                 \
        typedef float E;                     \
        call;                                \
    }
#else
#define IN_TYPE(low, call)   \
    {                        \
        check_type(low);     \
        typedef float E;     \
        call;                \
    }
#endif

void check_type(bool low) {
#ifndef __AVX512BF16__
    if (low) throw std::runtime_error("this build computes in float only");
#else
    (void)low;
#endif
}

}  // namespace

EXPORT void ernie_kernels_threads(int n) {
    wanted_threads = n;
    omp_set_num_threads(n);
    prepare_thread();
}
EXPORT int ernie_kernels_max_threads() { return omp_get_max_threads(); }
EXPORT const char* ernie_granted_threads(int* count) {
    return guarded([&] { *count = GrantedThreads().count(); });
}
EXPORT const char* ernie_try_products() { return guarded(try_products); }

EXPORT const char* ernie_product(int low, long M, long N, long K, const void* A, long lda, int ta, const void* B, long ldb, int tb,
                                 const float* bias, void* C, int low_out, long ldc, int add, int alone) {
    return guarded([&] {
        check_type(low || low_out);
        product(low ? Type::bf16 : Type::f32, low_out ? Type::bf16 : Type::f32, M, N, K, {A, lda, ta != 0}, {B, ldb, tb != 0}, bias, C, ldc,
                add != 0, alone != 0);
    });
}

EXPORT const char* ernie_attention_forward(int low, const AttentionShape* shape, float dropout, uint64_t seed, const void* q,
                                           const void* k, const void* v, void* mixed, float* logsum) {
    return guarded([&] {
        const long D = shape->heads * shape->size;
        IN_TYPE(low, attention_forward(*shape, Dropout(dropout, seed, 1), (const E*)q, D, (const E*)k, D, (const E*)v, D, (E*)mixed, logsum))
    });
}

EXPORT const char* ernie_attention_over_runs(const AttentionShape* shape, float dropout, uint64_t seed, const float* q,
                                             const int32_t* offsets, const float* const* keys, const float* const* values,
                                             const int32_t* rows, float* mixed) {
    return guarded([&] {
        const long D = shape->heads * shape->size;
        const Runs<float> runs{offsets, keys, values, rows, D, D};
        attention_over_runs<float>(*shape, Dropout(dropout, seed, 1), q, D, runs, mixed, nullptr);
    });
}

EXPORT const char* ernie_attention_backward(int low, const AttentionShape* shape, float dropout, uint64_t seed, const void* q,
                                            const void* k, const void* v, const void* mixed, const float* logsum, const void* grad,
                                            void* dq, void* dk, void* dv) {
    return guarded([&] {
        const long D = shape->heads * shape->size;
        IN_TYPE(low, attention_backward(*shape, Dropout(dropout, seed, 1), (const E*)q, D, (const E*)k, D, (const E*)v, D, (const E*)mixed,
                                        logsum, (const E*)grad, (E*)dq, D, (E*)dk, D, (E*)dv, D))
    });
}

EXPORT const char* ernie_layer_bytes(int low, const LayerShape* shape, long* bytes) {
    return guarded([&] { IN_TYPE(low, *bytes = LayerMemory<E>(*shape, nullptr).bytes) });
}
EXPORT const char* ernie_layer_forward(int low, const LayerShape* shape, const LayerWeights* weights, const float* x, char* memory,
                                       float* y) {
    return guarded([&] { IN_TYPE(low, layer_forward<E>(*shape, *weights, x, memory, y)) });
}
EXPORT const char* ernie_layer_backward(int low, const LayerShape* shape, const LayerWeights* weights, char* memory, const float* grad,
                                        const LayerGradients* gradients, const LayerFactors* factors, float* dx) {
    return guarded([&] { IN_TYPE(low, layer_backward<E>(*shape, *weights, memory, grad, *gradients, *factors, dx)) });
}

EXPORT const char* ernie_add_norm(const float* residual, const float* x, const float* gain, const float* offset, float epsilon, float dropout,
                                  uint64_t seed, long T, long D, float* y, float* normal, float* inverse) {
    return guarded([&] { add_norm<float>(residual, x, gain, offset, epsilon, Dropout(dropout, seed, 0), T, D, y, nullptr, normal, inverse); });
}
EXPORT const char* ernie_add_norm_backward(const float* grad, const float* normal, const float* inverse, const float* gain, float dropout,
                                           uint64_t seed, long T, long D, float* dsum, float* dx, float* dgain, float* doffset) {
    return guarded([&] { add_norm_backward<float>(grad, normal, inverse, gain, Dropout(dropout, seed, 0), T, D, dsum, dx, dgain, doffset, nullptr); });
}

EXPORT const char* ernie_activate(int activation, const float* u, float* y, long count) {
    return guarded([&] { activate<float>(Activation(activation), u, y, count); });
}
EXPORT const char* ernie_activate_backward(int activation, const float* u, float* grad, long T, long F, float* bias) {
    return guarded([&] { activate_backward<float>(Activation(activation), u, grad, T, F, bias); });
}
EXPORT const char* ernie_gate(const float* u, long T, long C, float* y) {
    return guarded([&] { gate(u, T, C, y); });
}
EXPORT const char* ernie_gated_forward(const GatedLayer* layer, long N, long S, long A, long R, const float* x, const float* conditioner, int add,
                                       float* inner, float* next, float* sums) {
    return guarded([&] { gated_forward(*layer, N, S, A, R, x, conditioner, add, inner, next, sums); });
}
EXPORT const char* ernie_gated_backward(const GatedLayer* layer, long N, long S, long R, const float* inner, const float* grad,
                                        const float* grad_next, float* grad_inner, float* grad_x) {
    return guarded([&] { gated_backward(*layer, N, S, R, inner, grad, grad_next, grad_inner, grad_x); });
}
EXPORT const char* ernie_gru_forward(const Recurrence* r, const float* x, const float* U, const float* b, float* h, float* kept) {
    return guarded([&] { gru_forward(*r, x, U, b, h, kept); });
}
EXPORT const char* ernie_gru_backward(const Recurrence* r, const float* U, const float* h, const float* kept, const float* grad, float* dx,
                                      float* dadded, float* dbegin) {
    return guarded([&] { gru_backward(*r, U, h, kept, grad, dx, dadded, dbegin); });
}
EXPORT const char* ernie_draw(const Network* network, long N, long S, const float* last, const float* conditioning, const float* noise,
                              float* const* rows, float* samples) {
    return guarded([&] { draw(*network, N, S, last, conditioning, noise, rows, samples); });
}
EXPORT const char* ernie_wavenet(const WaveNet* net, long N, long S, long A, const float* samples, const float* conditioner, const float* past,
                                 float* outputs, float* after) {
    return guarded([&] { wavenet(*net, N, S, A, samples, conditioner, past, outputs, after); });
}
EXPORT const char* ernie_gaussian_attention(long N, const int64_t* offsets, long D, const float* positions, const float* precisions,
                                            const float* middles, const float* values, float* attended, int64_t* most) {
    return guarded([&] { gaussian_attention(N, offsets, D, positions, precisions, middles, values, attended, most); });
}
EXPORT const char* ernie_column_sum(int low, const void* x, long T, long D, float* sum) {
    return guarded([&] { IN_TYPE(low, column_sum<E>((const E*)x, T, D, D, sum)) });
}
EXPORT const char* ernie_drop(const float* x, float dropout, uint64_t seed, long T, long D, float* y) {
    return guarded([&] { drop(x, Dropout(dropout, seed, 0), T, D, y); });
}

EXPORT const char* ernie_copy_runs(long count, void* const* to, const void* const* from, const long* bytes) {
    return guarded([&] { copy_runs(count, to, from, bytes); });
}
EXPORT const char* ernie_gather_sum(int tables, const float* const* table, const int64_t* const* ids, long T, long D, float* z) {
    return guarded([&] { gather_sum(tables, table, ids, T, D, z); });
}
EXPORT const char* ernie_scatter_add(int tables, float* const* table, const int64_t* const* ids, long T, long D, const float* grad) {
    return guarded([&] { scatter_add(tables, table, ids, T, D, grad); });
}

EXPORT const char* ernie_cross_entropy(int low, const float* logits, const int64_t* labels, const double* draws, long P,
                                       long V, float* loss, void* grad, int64_t* drawn) {
    return guarded([&] { IN_TYPE(low, softmax_cross_entropy<E>(logits, labels, draws, P, V, loss, (E*)grad, drawn)) });
}
EXPORT const char* ernie_scale(int low, void* x, long count, float factor) {
    return guarded([&] { IN_TYPE(low, scale<E>((E*)x, count, factor)) });
}
EXPORT const char* ernie_convert(const float* x, void* y, long rows, long width) {
    return guarded([&] { IN_TYPE(1, convert<E>(x, (E*)y, rows, width, rows)) });
}

EXPORT const char* ernie_adamw(const AdamW* settings, float* weight, const float* grad, float* moment1, float* moment2, void* copy,
                               uint8_t* moments, long count) {
    return guarded([&] { adamw(*settings, weight, grad, moment1, moment2, (bf16*)copy, (Moments*)moments, count); });
}
EXPORT const char* ernie_set_from_factors(const float* pretrained, const float* a, const float* b, float* weight, void* copy, long D, long E,
                                          long rank, float scale) {
    return guarded([&] { set_from_factors(pretrained, a, b, weight, (bf16*)copy, D, E, rank, scale); });
}
EXPORT const char* ernie_squares(const float* x, long count, double* sum) {
    return guarded([&] { *sum = squares(x, count); });
}
EXPORT const char* ernie_fingerprint(const float* matrix, long rows, long columns, uint64_t* found) {
    return guarded([&] { *found = fingerprint(matrix, rows, columns); });
}
EXPORT const char* ernie_peak(int low, long rounds, double* operations) {
    return guarded([&] { IN_TYPE(low, *operations = peak<E>(rounds)) });
}

EXPORT const char* ernie_stack_new(int kind, long layers, long width, long inner, int activation, float epsilon, const LayerWeights* weights,
                                   void** stack) {
    return guarded([&] {
        check_type(Kind(kind) == Kind::bf16);
        *stack = new Stack(Kind(kind), width, inner, Activation(activation), epsilon, std::vector<LayerWeights>(weights, weights + layers));
    });
}
EXPORT const char* ernie_stack_is_of(void* stack, const LayerWeights* weights, int* answer) {
    return guarded([&] { *answer = static_cast<const Stack*>(stack)->is_of(weights); });
}
EXPORT const char* ernie_stack_run(void* stack, const LayerShape* shape, const LayerShape* last, const LayerWeights* weights, long parts,
                                   const AdaptedRows* adapted, const float* x, float* y) {
    return guarded([&] { static_cast<Stack*>(stack)->run(*shape, *last, weights, std::vector<AdaptedRows>(adapted, adapted + parts), x, y); });
}
EXPORT const char* ernie_stack_delete(void* stack) {
    return guarded([&] { delete static_cast<Stack*>(stack); });
}
