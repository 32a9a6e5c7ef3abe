// A post-norm Transformer layer (Devlin et al., 2019): attention and a feed-forward network, each with residual and norm.
//
// Vectors inside the layer are of type E (float or bfloat16); its outputs and all sums are float.  The activation's output
// is not saved but recomputed in the backward pass: that saves a quarter of the memory and costs a hundredth of the time.
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
    const long T, R, D, F, P, Q;  // tokens, outputs, widths; tokens and outputs rounded up
    const Dropout attention_dropout, dropout1, dropout2;

    Layer(const LayerShape& shape, const LayerWeights& weights, char* memory)
        : s(shape),
          w(weights),
          m(shape, memory),
          T(s.tokens),
          R(s.outputs),
          D(s.width),
          F(s.inner),
          P(round_up(T, ROW_MULTIPLE)),
          Q(round_up(R, ROW_MULTIPLE)),
          attention_dropout(s.attention_dropout, s.seed, ATTENTION),
          dropout1(s.dropout, s.seed, AFTER_ATTENTION),
          dropout2(s.dropout, s.seed, AFTER_FEED_FORWARD) {}

    // y (rows, N) = x (rows, K) W + b
    void linear(long rows, const E* x, long K, const void* weight, const float* bias, long N, E* y, long ldy) {
        product(type_of<E>, type_of<E>, rows, N, K, {x, K}, {weight, N}, bias, y, ldy, false);
    }
    // y (rows, K) = g (rows, N) W^T, in E or float
    template <class Out>
    void to_input(long rows, const E* g, long ldg, long N, const void* weight, long K, Out* y, bool add) {
        product(type_of<E>, type_of<Out>, rows, K, N, {g, ldg}, {weight, N, true}, nullptr, y, K, add);
    }
    // dW (K, N) = x^T g, or the gradients of its factors, as far as they are wanted
    void to_weight(long rows, const E* x, long K, const E* g, long ldg, long N, float* grad, const Factors& factors) {
        if (grad) product(type_of<E>, Type::f32, K, N, rows, {x, K, true}, {g, ldg}, nullptr, grad, N, false);
        if (factors.a) factor_gradients(factors, x, rows, K, g, ldg, N);
    }
    // The rows of x that have outputs, gathered; x itself if all have.
    const float* output_rows(const float* x, Scratch& memory) {
        if (!s.rows) return x;
        float* found = memory.get<float>(R * D);
#pragma omp parallel for schedule(static)
        for (long r = 0; r < R; r++) std::copy(x + s.rows[r] * D, x + (s.rows[r] + 1) * D, found + r * D);
        return found;
    }
};

template <class E>
E* scratch(int which, long count) {
    static thread_local Scratch memory[9];
    return memory[which].get<E>(count);
}

Scratch& output_rows_memory() {
    static thread_local Scratch memory;
    return memory;
}

}  // namespace

template <class E>
LayerMemory<E>::LayerMemory(const LayerShape& s, char* memory) {
    const long P = round_up(s.tokens, ROW_MULTIPLE), R = round_up(s.outputs, ROW_MULTIPLE), D = s.width;
    long at = 0;
    auto take = [&](auto*& pointer, long count) {
        pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(memory + at);
        at += round_up(count * long(sizeof *pointer), 64);
    };
    take(x, P * D), take(q, R * D), take(kv, P * 2 * D), take(mixed, R * D), take(normal1, R * D), take(preactivation, R * s.inner);
    take(normal2, R * D), take(logsum, R * s.attention.heads), take(inverse1, R), take(inverse2, R);
    x_out = x;
    if (s.rows) take(x_out, R * D);
    bytes = at;
}

template <class E>
void layer_forward(const LayerShape& s, const LayerWeights& w, const float* x_TD, char* memory, float* y_TD) {
    Layer<E> l(s, w, memory);
    auto& m = l.m;
    const long T = l.T, R = l.R, D = l.D, F = l.F, P = l.P, Q = l.Q;
    E* branch = scratch<E>(0, Q * D);
    float* between = scratch<float>(1, Q * D);
    E* between_low = scratch<E>(2, Q * D);
    E* inner = scratch<E>(3, Q * F);
    float* y = s.rows ? scratch<float>(7, R * D) : y_TD;

    const float* residual = l.output_rows(x_TD, output_rows_memory());
    convert(x_TD, m.x, T, D, P);
    if (s.rows) convert(residual, m.x_out, R, D, Q);
    l.linear(Q, m.x_out, D, w.q, w.q_bias, D, m.q, D);
    l.linear(P, m.x, D, w.k, w.k_bias, D, m.kv, 2 * D);
    l.linear(P, m.x, D, w.v, w.v_bias, D, m.kv + D, 2 * D);
    attention_forward(s.attention, l.attention_dropout, m.q, D, m.kv, 2 * D, m.kv + D, 2 * D, m.mixed, m.logsum);
    clear_rows(m.mixed, R, Q, D);
    l.linear(Q, m.mixed, D, w.out, w.out_bias, D, branch, D);
    add_norm(residual, branch, w.gain1, w.offset1, s.epsilon, l.dropout1, R, D, between, between_low, m.normal1, m.inverse1);
    clear_rows(between_low, R, Q, D);
    l.linear(Q, between_low, D, w.inner, w.inner_bias, F, m.preactivation, F);
    activate(s.activation, m.preactivation, inner, Q * F);
    l.linear(Q, inner, F, w.outer, w.outer_bias, D, branch, D);
    add_norm<E>(between, branch, w.gain2, w.offset2, s.epsilon, l.dropout2, R, D, y, nullptr, m.normal2, m.inverse2);
    if (s.rows) {
        std::fill(y_TD, y_TD + T * D, 0.f);
        for (long r = 0; r < R; r++) std::copy(y + r * D, y + (r + 1) * D, y_TD + s.rows[r] * D);
    }
}

template <class E>
void layer_backward(const LayerShape& s, const LayerWeights& w, char* memory, const float* grad_TD, const LayerGradients& g,
                    const LayerFactors& f, float* dx_TD) {
    Layer<E> l(s, w, memory);
    auto& m = l.m;
    const long T = l.T, R = l.R, D = l.D, F = l.F, P = l.P, Q = l.Q;
    E* branch = scratch<E>(0, Q * D);
    float* residual = scratch<float>(1, Q * D);
    E* between = scratch<E>(2, Q * D);
    E* inner = scratch<E>(3, Q * F);
    E* d_inner = scratch<E>(4, Q * F);
    E* d_mixed = scratch<E>(5, Q * D);
    E* d_q = scratch<E>(6, Q * D + P * 2 * D);
    E* d_kv = d_q + Q * D;
    float* d_x_out = scratch<float>(7, Q * D);                  // the gradient of the rows of x with outputs
    float* d_x = s.rows ? scratch<float>(8, P * D) : d_x_out;  // and of all rows

    add_norm_backward(l.output_rows(grad_TD, output_rows_memory()), m.normal2, m.inverse2, w.gain2, l.dropout2, R, D, residual, branch, g.gain2,
                      g.offset2, g.outer_bias);
    clear_rows(residual, R, Q, D);
    clear_rows(branch, R, Q, D);
    if (g.outer || f.outer.a) activate(s.activation, m.preactivation, inner, Q * F);
    l.to_weight(Q, inner, F, branch, D, D, g.outer, f.outer);
    l.to_input(Q, branch, D, D, w.outer, F, d_inner, false);
    activate_backward(s.activation, m.preactivation, d_inner, R, F, g.inner_bias);
    clear_rows(d_inner, R, Q, F);
    if (g.inner || f.inner.a) {
        restore(m.normal1, w.gain1, w.offset1, R, D, between);
        clear_rows(between, R, Q, D);
    }
    l.to_weight(Q, between, D, d_inner, F, F, g.inner, f.inner);
    l.to_input(Q, d_inner, F, F, w.inner, D, residual, true);
    add_norm_backward(residual, m.normal1, m.inverse1, w.gain1, l.dropout1, R, D, d_x_out, branch, g.gain1, g.offset1, g.out_bias);
    clear_rows(d_x_out, R, Q, D);
    clear_rows(branch, R, Q, D);
    l.to_weight(Q, m.mixed, D, branch, D, D, g.out, f.out);
    l.to_input(Q, branch, D, D, w.out, D, d_mixed, false);
    attention_backward(s.attention, l.attention_dropout, m.q, D, m.kv, 2 * D, m.kv + D, 2 * D, m.mixed, m.logsum, d_mixed, d_q, D,
                       d_kv, 2 * D, d_kv + D, 2 * D);
    clear_rows(d_q, R, Q, D);
    clear_rows(d_kv, T, P, 2 * D);
    column_sum(d_q, R, D, D, g.q_bias);
    column_sum(d_kv, T, D, 2 * D, g.k_bias);
    column_sum(d_kv + D, T, D, 2 * D, g.v_bias);
    l.to_weight(Q, m.x_out, D, d_q, D, D, g.q, f.q);
    l.to_weight(P, m.x, D, d_kv, 2 * D, D, g.k, f.k);
    l.to_weight(P, m.x, D, d_kv + D, 2 * D, D, g.v, f.v);
    if (!dx_TD) return;
    l.to_input(Q, d_q, D, D, w.q, D, d_x_out, true);
    l.to_input(P, d_kv, 2 * D, D, w.k, D, d_x, d_x == d_x_out);
    l.to_input(P, d_kv + D, 2 * D, D, w.v, D, d_x, true);
    convert(d_x, dx_TD, T, D, T);
    if (s.rows)
        for (long r = 0; r < R; r++)
            for (long i = 0; i < D; i++) dx_TD[s.rows[r] * D + i] += d_x_out[r * D + i];
}

#define INSTANTIATE(E)                                                                                                           \
    template struct LayerMemory<E>;                                                                                              \
    template void layer_forward<E>(const LayerShape&, const LayerWeights&, const float*, char*, float*);                         \
    template void layer_backward<E>(const LayerShape&, const LayerWeights&, char*, const float*, const LayerGradients&, const LayerFactors&, float*);
INSTANTIATE(float)
#ifdef __AVX512BF16__
INSTANTIATE(bf16)
#endif

}  // namespace ernie
