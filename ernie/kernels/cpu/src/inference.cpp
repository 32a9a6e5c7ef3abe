// A stack of layers for inference.
//
// One product computes queries, keys and values.  Vectors between the products are of type E.
#include "inference.h"

#include "fingerprint.h"
#include "threads.h"

namespace ernie {

Stack::Stack(Kind kind, long width, long inner, Activation activation, float epsilon, const std::vector<LayerWeights>& layers)
    : kind_(kind), D_(width), F_(inner), activation_(activation), epsilon_(epsilon) {
    auto matrix = [](const void* weight) { return static_cast<const float*>(weight); };
    for (const LayerWeights& w : layers)
        layers_.push_back({pack_weight(kind, {D_, {matrix(w.q), matrix(w.k), matrix(w.v)}, {D_, D_, D_}}, weights_),
                           pack_weight(kind, {D_, {matrix(w.out)}, {D_}}, weights_),
                           pack_weight(kind, {D_, {matrix(w.inner)}, {F_}}, weights_),
                           pack_weight(kind, {F_, {matrix(w.outer)}, {D_}}, weights_)});
    fingerprints_ = fingerprints(layers.data());
}

std::vector<uint64_t> Stack::fingerprints(const LayerWeights* weights) const {
    constexpr long MATRICES = 6;
    const long count = long(layers_.size()) * MATRICES;
    std::vector<uint64_t> found(static_cast<size_t>(count));
// Paddle's OpenMP runtime knows no nonmonotonic loops.
#pragma omp parallel for schedule(monotonic : dynamic) if (count * D_ > FEW)
    for (long n = 0; n < count; n++) {
        const LayerWeights& w = weights[n / MATRICES];
        const void* matrices[MATRICES] = {w.q, w.k, w.v, w.out, w.inner, w.outer};
        const long which = n % MATRICES, rows = which == 5 ? F_ : D_, columns = which == 4 ? F_ : D_;
        found[size_t(n)] = fingerprint(static_cast<const float*>(matrices[which]), rows, columns);
    }
    return found;
}

bool Stack::is_of(const LayerWeights* weights) const { return fingerprints(weights) == fingerprints_; }

template <class E>
void Stack::layer(Scratch* memory, const LayerShape& s, const Packed& p, const LayerWeights& w, const float* x_TD, float* y_RD) {
    const long T = s.tokens, R = s.outputs, D = D_, P = p.qkv->rows(T), Q = p.qkv->rows(R);
    E* low = memory[0].get<E>(P * D);
    E* qkv = memory[1].get<E>(P * 3 * D);
    E* mixed = memory[2].get<E>(Q * D);
    E* branch = memory[3].get<E>(Q * D);
    E* inner = memory[4].get<E>(Q * F_);
    float* between = memory[5].get<float>(Q * D);
    float* residual = memory[6].get<float>((s.rows ? R * D : 0) + 3 * D + R * s.attention.heads + R);
    float *bias = residual + (s.rows ? R * D : 0), *logsum = bias + 3 * D, *inverse = logsum + R * s.attention.heads;
    const Dropout none(0.f, 0, 0);

    std::copy(w.q_bias, w.q_bias + D, bias);
    std::copy(w.k_bias, w.k_bias + D, bias + D);
    std::copy(w.v_bias, w.v_bias + D, bias + 2 * D);
    convert(x_TD, low, T, D, P);
    p.qkv->multiply(T, low, bias, Activation::none, qkv);
    const E* queries = qkv;
    long ldq = 3 * D;
    if (s.rows) {
        E* gathered = memory[7].get<E>(R * D);
        for (long r = 0; r < R; r++) {
            std::copy(qkv + s.rows[r] * 3 * D, qkv + s.rows[r] * 3 * D + D, gathered + r * D);
            std::copy(x_TD + s.rows[r] * D, x_TD + (s.rows[r] + 1) * D, residual + r * D);
        }
        queries = gathered, ldq = D;
    }
    attention_forward(s.attention, none, queries, ldq, qkv + D, 3 * D, qkv + 2 * D, 3 * D, mixed, logsum);
    clear_rows(mixed, R, Q, D);
    p.out->multiply(R, mixed, w.out_bias, Activation::none, branch);
    E* normal = low;  // low is no longer needed, and large enough for the outputs
    add_norm(s.rows ? residual : x_TD, branch, w.gain1, w.offset1, epsilon_, none, R, D, between, mixed, normal, inverse);
    clear_rows(mixed, R, Q, D);
    p.inner->multiply(R, mixed, w.inner_bias, activation_, inner);
    p.outer->multiply(R, inner, w.outer_bias, Activation::none, branch);
    add_norm<E>(between, branch, w.gain2, w.offset2, epsilon_, none, R, D, y_RD, nullptr, normal, inverse);
}

void Stack::run(const LayerShape& shape, const LayerShape& last, const LayerWeights* weights, const float* x_TD, float* y_TD) {
    const long T = shape.tokens, D = D_;
    Pool<Workspace>::Loan workspace(workspaces_);
    Scratch* memory = workspace->memory;
    float* states = memory[8].get<float>(T * D);
    const float* x = x_TD;
    for (size_t n = 0; n < layers_.size(); n++) {
        const LayerShape& s = n + 1 == layers_.size() ? last : shape;
        // Layers may run in place: each reads its whole input before it writes output, except the residual, row by row.
        float* y = &s == &last && !last.rows ? y_TD : states;
        if (kind_ == Kind::f32)
            layer<float>(memory, s, layers_[n], weights[n], x, y);
        else
            layer<Low>(memory, s, layers_[n], weights[n], x, y);
        x = y;
    }
    if (!last.rows) return;
    std::fill(y_TD, y_TD + T * D, 0.f);
    for (long r = 0; r < last.outputs; r++) std::copy(states + r * D, states + (r + 1) * D, y_TD + last.rows[r] * D);
}

}  // namespace ernie
