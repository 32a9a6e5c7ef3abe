// A post-norm Transformer layer as one forward and one backward function.
#pragma once
#include "attention.h"
#include "low_rank.h"
#include "rows.h"

namespace ernie {

// Products compute with the number of tokens rounded up to a multiple, so that few shapes occur.  The padding is zero.
constexpr long ROW_MULTIPLE = 32;

// Outputs are computed only for the `outputs` tokens in `rows` (ascending), or for all tokens if `rows` is null.
struct LayerShape {
    long tokens, outputs, width, inner;
    const int64_t* rows;
    Activation activation;
    float epsilon, dropout, attention_dropout;
    uint64_t seed;
    AttentionShape attention;
};

// Weights (in, out) in the compute type; biases and norms in float.
struct LayerWeights {
    const void *q, *k, *v, *out, *inner, *outer;
    const float *q_bias, *k_bias, *v_bias, *out_bias, *inner_bias, *outer_bias;
    const float *gain1, *offset1, *gain2, *offset2;
};
// Matrices whose gradient is not wanted are null.
struct LayerGradients {
    float *q, *k, *v, *out, *inner, *outer;
    float *q_bias, *k_bias, *v_bias, *out_bias, *inner_bias, *outer_bias;
    float *gain1, *offset1, *gain2, *offset2;
};

// Factors from which matrices follow: they get gradients in place of the matrices.
struct LayerFactors {
    Factors q, k, v, out, inner, outer;
};

// What is saved for the backward pass, in one buffer of `bytes`.  P is the number of tokens rounded up, R that of outputs.
template <class E>
struct LayerMemory {
    E *x, *x_out, *q, *kv;                          // (P, D), (R, D) the rows of x with outputs, (R, D), (P, 2 D)
    E *mixed, *normal1, *preactivation, *normal2;   // (R, D), (R, D), (R, F), (R, D)
    float *logsum, *inverse1, *inverse2;            // (R, H), (R,), (R,)
    long bytes;
    LayerMemory(const LayerShape&, char* memory);  // if null, only `bytes` is valid
};

// y (T, D) is zero at tokens without output; rows of the gradient at those tokens are ignored.
template <class E>
void layer_forward(const LayerShape&, const LayerWeights&, const float* x_TD, char* memory, float* y_TD);
template <class E>
void layer_backward(const LayerShape&, const LayerWeights&, char* memory, const float* grad_TD, const LayerGradients&,
                    const LayerFactors&, float* dx_TD);

}  // namespace ernie
