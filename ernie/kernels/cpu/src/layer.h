// A post-norm Transformer layer as one step forward and one backward.
#pragma once
#include "attention.h"
#include "rows.h"

namespace ernie {

// Rows that the products work on: the tokens, rounded up so that few shapes occur.  Those beyond the tokens are zero.
constexpr long ROW_MULTIPLE = 32;

// Outputs are wanted at `outputs` of the tokens only, `rows` (ascending); at all of them where `rows` is null.
struct LayerShape {
    long tokens, outputs, width, inner;
    const int64_t* rows;
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

// What the backward pass needs, in one piece of memory of `bytes`.  P rows are the tokens rounded up, R the outputs.
template <class E>
struct LayerMemory {
    E *x, *asking, *q, *kv;                         // (P, D), (R, D), (R, D), (P, 2 D)
    E *mixed, *normal1, *before, *normal2;          // (R, D), (R, D), (R, F), (R, D)
    float *logsum, *inverse1, *inverse2;            // (R, H), (R,), (R,)
    long bytes;
    LayerMemory(const LayerShape&, char* memory);  // with null only `bytes` is of use
};

// y (T, D) is zero where no output is wanted; rows of its gradient that are not wanted are not looked at.
template <class E>
void layer_forward(const LayerShape&, const LayerWeights&, const float* x_TD, char* memory, float* y_TD);
template <class E>
void layer_backward(const LayerShape&, const LayerWeights&, char* memory, const float* grad_TD, const LayerGradients&, float* dx_TD);

}  // namespace ernie
