// A post-norm Transformer layer (Devlin et al., 2019): attention and a feed-forward network, each with residual and norm.
//
// Inside, vectors are of type E (float or bfloat16); what leaves the layer, and all sums, are float.  The activation's
// output is not kept but computed again in the backward pass: a quarter of the memory for a hundredth of the time.
#include "layer.h"

#include <utility>

#include "product.h"
#include "threads.h"

namespace ernie {
namespace {

enum Site : uint32_t { ATTENTION = 1, AFTER_ATTENTION = 2, AFTER_FEED_FORWARD = 3 };

template <class E>
struct Layer {
    const LayerShape& s;
    const LayerWeights& w;
    LayerMemory<E> m;
    const long T, D, F, P;
    const Dropout attention_dropout, dropout1, dropout2;

    Layer(const LayerShape& shape, const LayerWeights& weights, char* memory)
        : s(shape),
          w(weights),
          m(shape, memory),
          T(s.tokens),
          D(s.width),
          F(s.inner),
          P(round_up(T, ROW_MULTIPLE)),
          attention_dropout(s.attention_dropout, s.seed, ATTENTION),
          dropout1(s.dropout, s.seed, AFTER_ATTENTION),
          dropout2(s.dropout, s.seed, AFTER_FEED_FORWARD) {}

    // y (P, N) = x (P, K) W + b
    void linear(const E* x, long K, const void* weight, const float* bias, long N, E* y, long ldy) {
        product(type_of<E>, type_of<E>, P, N, K, {x, K}, {weight, N}, bias, y, ldy, false);
    }
    // y (P, K) = g (P, N) W^T, in E or added to float
    template <class Out>
    void to_input(const E* g, long ldg, long N, const void* weight, long K, Out* y, bool add) {
        product(type_of<E>, type_of<Out>, P, K, N, {g, ldg}, {weight, N, true}, nullptr, y, K, add);
    }
    // dW (K, N) = x^T g
    void to_weight(const E* x, long K, const E* g, long ldg, long N, float* grad) {
        product(type_of<E>, Type::f32, K, N, P, {x, K, true}, {g, ldg}, nullptr, grad, N, false);
    }
};

template <class E>
E* scratch(int which, long count) {
    static thread_local Scratch memory[8];
    return memory[which].get<E>(count);
}

}  // namespace

template <class E>
LayerMemory<E>::LayerMemory(const LayerShape& s, char* memory) {
    const long P = round_up(s.tokens, ROW_MULTIPLE), D = s.width;
    E* e = reinterpret_cast<E*>(memory);
    auto take = [&](long count) { return std::exchange(e, e + round_up(count, 64)); };
    x = take(P * D), qkv = take(P * 3 * D), mixed = take(P * D), normal1 = take(P * D);
    before = take(P * s.inner), normal2 = take(P * D);
    float* f = reinterpret_cast<float*>(e);
    logsum = f, inverse1 = logsum + P * s.attention.heads, inverse2 = inverse1 + P;
}

template <class E>
long LayerMemory<E>::bytes(const LayerShape& s) {
    const long P = round_up(s.tokens, ROW_MULTIPLE), D = s.width;
    return long(sizeof(E)) * (5 * round_up(P * D, 64) + round_up(P * 3 * D, 64) + round_up(P * s.inner, 64)) +
           4 * (P * s.attention.heads + 2 * P);
}

template <class E>
void layer_forward(const LayerShape& s, const LayerWeights& w, const float* x_TD, char* memory, float* y_TD) {
    Layer<E> l(s, w, memory);
    const long T = l.T, D = l.D, F = l.F, P = l.P;
    E* branch = scratch<E>(0, P * D);
    float* between = scratch<float>(1, P * D);
    E* between_low = scratch<E>(2, P * D);
    E* inner = scratch<E>(3, P * F);

    convert(x_TD, l.m.x, T, D, P);
    l.linear(l.m.x, D, w.q, w.q_bias, D, l.m.qkv, 3 * D);
    l.linear(l.m.x, D, w.k, w.k_bias, D, l.m.qkv + D, 3 * D);
    l.linear(l.m.x, D, w.v, w.v_bias, D, l.m.qkv + 2 * D, 3 * D);
    attention_forward(s.attention, l.attention_dropout, l.m.qkv, 3 * D, l.m.qkv + D, 3 * D, l.m.qkv + 2 * D, 3 * D, l.m.mixed,
                      l.m.logsum);
    clear_rows(l.m.mixed, T, P, D);
    l.linear(l.m.mixed, D, w.out, w.out_bias, D, branch, D);
    add_norm(x_TD, branch, w.gain1, w.offset1, s.epsilon, l.dropout1, T, D, between, between_low, l.m.normal1, l.m.inverse1);
    clear_rows(between_low, T, P, D);
    l.linear(between_low, D, w.inner, w.inner_bias, F, l.m.before, F);
    activate(s.activation, l.m.before, inner, P * F);
    l.linear(inner, F, w.outer, w.outer_bias, D, branch, D);
    add_norm<E>(between, branch, w.gain2, w.offset2, s.epsilon, l.dropout2, T, D, y_TD, nullptr, l.m.normal2, l.m.inverse2);
}

template <class E>
void layer_backward(const LayerShape& s, const LayerWeights& w, char* memory, const float* grad_TD, const LayerGradients& g,
                    float* dx_TD) {
    Layer<E> l(s, w, memory);
    const long T = l.T, D = l.D, F = l.F, P = l.P;
    E* branch = scratch<E>(0, P * D);
    float* residual = scratch<float>(1, P * D);
    E* between = scratch<E>(2, P * D);
    E* inner = scratch<E>(3, P * F);
    E* d_inner = scratch<E>(4, P * F);
    E* d_mixed = scratch<E>(5, P * D);
    E* d_qkv = scratch<E>(6, P * 3 * D);
    float* into = scratch<float>(7, P * D);

    add_norm_backward(grad_TD, l.m.normal2, l.m.inverse2, w.gain2, l.dropout2, T, D, residual, branch, g.gain2, g.offset2,
                      g.outer_bias);
    clear_rows(residual, T, P, D);
    clear_rows(branch, T, P, D);
    activate(s.activation, l.m.before, inner, P * F);
    l.to_weight(inner, F, branch, D, D, g.outer);
    l.to_input(branch, D, D, w.outer, F, d_inner, false);
    activate_backward(s.activation, l.m.before, d_inner, T, F, g.inner_bias);
    clear_rows(d_inner, T, P, F);
    restore(l.m.normal1, w.gain1, w.offset1, T, D, between);
    clear_rows(between, T, P, D);
    l.to_weight(between, D, d_inner, F, F, g.inner);
    l.to_input(d_inner, F, F, w.inner, D, residual, true);
    add_norm_backward(residual, l.m.normal1, l.m.inverse1, w.gain1, l.dropout1, T, D, into, branch, g.gain1, g.offset1, g.out_bias);
    clear_rows(into, T, P, D);
    clear_rows(branch, T, P, D);
    l.to_weight(l.m.mixed, D, branch, D, D, g.out);
    l.to_input(branch, D, D, w.out, D, d_mixed, false);
    attention_backward(s.attention, l.attention_dropout, l.m.qkv, 3 * D, l.m.qkv + D, 3 * D, l.m.qkv + 2 * D, 3 * D, l.m.mixed,
                       l.m.logsum, d_mixed, d_qkv, 3 * D, d_qkv + D, 3 * D, d_qkv + 2 * D, 3 * D);
    clear_rows(d_qkv, T, P, 3 * D);
    const void* weights[3] = {w.q, w.k, w.v};
    float *grads[3] = {g.q, g.k, g.v}, *biases[3] = {g.q_bias, g.k_bias, g.v_bias};
    for (int i = 0; i < 3; i++) {
        column_sum(d_qkv + i * D, T, D, 3 * D, biases[i]);
        l.to_weight(l.m.x, D, d_qkv + i * D, 3 * D, D, grads[i]);
        if (dx_TD) l.to_input(d_qkv + i * D, 3 * D, D, weights[i], D, into, true);
    }
    if (dx_TD) convert(into, dx_TD, T, D, T);
}

template struct LayerMemory<float>;
template void layer_forward<float>(const LayerShape&, const LayerWeights&, const float*, char*, float*);
template void layer_backward<float>(const LayerShape&, const LayerWeights&, char*, const float*, const LayerGradients&, float*);
#ifdef __AVX512BF16__
template struct LayerMemory<bf16>;
template void layer_forward<bf16>(const LayerShape&, const LayerWeights&, const float*, char*, float*);
template void layer_backward<bf16>(const LayerShape&, const LayerWeights&, char*, const float*, const LayerGradients&, float*);
#endif

}  // namespace ernie
