// A post-norm Transformer layer as one step forward and one backward.
#pragma once
#include "attention.h"
#include "rows.h"

namespace ernie {

// Rows that the products work on: the tokens, rounded up so that few shapes occur.  Those beyond the tokens are zero.
constexpr long ROW_MULTIPLE = 32;

struct LayerShape {
    long tokens, width, inner;
    Activation activation;
    float epsilon, dropout, attention_dropout;
    uint64_t seed;
    AttentionShape attention;
};

// Weights (in, out) in the type that is computed in; biases and norms in float.
struct LayerWeights {
    const void *q, *k, *v, *out, *inner, *outer;
    const float *q_bias, *k_bias, *v_bias, *out_bias, *inner_bias, *outer_bias;
    const float *gain1, *offset1, *gain2, *offset2;
};
struct LayerGradients {
    float *q, *k, *v, *out, *inner, *outer;
    float *q_bias, *k_bias, *v_bias, *out_bias, *inner_bias, *outer_bias;
    float *gain1, *offset1, *gain2, *offset2;
};

// What the backward pass needs, in one piece of memory of `bytes`.  P rows are the tokens rounded up.
template <class E>
struct LayerMemory {
    E *x, *qkv, *mixed, *normal1, *before, *normal2;  // (P, D), (P, 3 D), (P, D), (P, D), (P, F), (P, D)
    float *logsum, *inverse1, *inverse2;              // (P, H), (P,), (P,)
    LayerMemory(const LayerShape&, char* memory);
    static long bytes(const LayerShape&);
};

template <class E>
void layer_forward(const LayerShape&, const LayerWeights&, const float* x_TD, char* memory, float* y_TD);
template <class E>
void layer_backward(const LayerShape&, const LayerWeights&, char* memory, const float* grad_TD, const LayerGradients&, float* dx_TD);

}  // namespace ernie
