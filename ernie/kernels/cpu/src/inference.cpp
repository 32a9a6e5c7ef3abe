// A stack of layers for inference.
//
// One product computes queries, keys and values.  Vectors between the products are of type E.
#include "inference.h"

#include "fingerprint.h"
#include "threads.h"

namespace ernie {

constexpr int MATRICES = 6;  // of a layer
enum Matrix { Q = 0, K = 1, V = 2, OUT = 3, INNER = 4, OUTER = 5 };

// The rows of a layer's outputs whose matrices have updates.
static std::vector<AdaptedRows> of_outputs(std::vector<AdaptedRows> adapted, const LayerShape& s) {
    auto place = [&](long token) { return s.rows ? std::lower_bound(s.rows, s.rows + s.outputs, token) - s.rows : token; };
    for (AdaptedRows& part : adapted) part.begin = place(part.begin), part.end = place(part.end);
    return adapted;
}

// Adds the updates of a matrix (K, N) to its product y with x.
template <class E>
static void update(const std::vector<AdaptedRows>& adapted, Matrix matrix, const E* x, long K, E* y, long ldy, long N, Scratch& scratch) {
    for (const AdaptedRows& part : adapted)
        if (const LowRank& found = part.updates[matrix]; found.a && part.begin < part.end)
            add_low_rank(found, x + part.begin * K, part.end - part.begin, K, y + part.begin * ldy, ldy, N, scratch);
}

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
void Stack::layer(Scratch* memory, const LayerShape& s, const Packed& p, const LayerWeights& w, const std::vector<AdaptedRows>& adapted,
                  const float* x_TD, float* y_RD) {
    const long T = s.tokens, R = s.outputs, D = D_, P = p.qkv->rows(T), S = p.qkv->rows(R);
    E* low = memory[0].get<E>(P * D);
    E* qkv = memory[1].get<E>(P * 3 * D);
    const long padded = S + ROW_MULTIPLE;  // a product of some of the rows may read and write so many more
    E* mixed = memory[2].get<E>(padded * D);
    E* branch = memory[3].get<E>(S * D);
    E* inner = memory[4].get<E>(padded * F_);
    float* between = memory[5].get<float>(S * D);
    float* residual = memory[6].get<float>((s.rows ? R * D : 0) + 3 * D + R * s.attention.heads + R);
    float *bias = residual + (s.rows ? R * D : 0), *logsum = bias + 3 * D, *inverse = logsum + R * s.attention.heads;
    const Dropout none(0.f, 0, 0);

    std::copy(w.q_bias, w.q_bias + D, bias);
    std::copy(w.k_bias, w.k_bias + D, bias + D);
    std::copy(w.v_bias, w.v_bias + D, bias + 2 * D);
    convert(x_TD, low, T, D, P);
    p.qkv->multiply(T, low, bias, Activation::none, qkv);
    for (Matrix matrix : {Q, K, V}) update(adapted, matrix, low, D, qkv + matrix * D, 3 * D, D, memory[9]);
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
    clear_rows(mixed, R, S, D);
    p.out->multiply(R, mixed, w.out_bias, Activation::none, branch);
    const std::vector<AdaptedRows> outputs = of_outputs(adapted, s);
    update(outputs, OUT, mixed, D, branch, D, D, memory[9]);
    E* normal = low;  // low is no longer needed, and large enough for the outputs
    add_norm(s.rows ? residual : x_TD, branch, w.gain1, w.offset1, epsilon_, none, R, D, between, mixed, normal, inverse);
    clear_rows(mixed, R, S, D);
    long done = 0;
    auto multiply_inner = [&](long end, Activation activation) {
        if (done < end) p.inner->multiply(end - done, mixed + done * D, w.inner_bias, activation, inner + done * F_);
        done = std::max(done, end);
    };
    for (const AdaptedRows& part : outputs) {  // updates are added before the activation
        if (!part.updates[INNER].a || part.begin == part.end) continue;
        multiply_inner(part.begin, activation_);
        multiply_inner(part.end, Activation::none);
        update({part}, INNER, mixed, D, inner, F_, F_, memory[9]);
        activate(activation_, inner + part.begin * F_, inner + part.begin * F_, (part.end - part.begin) * F_);
    }
    multiply_inner(R, activation_);
    p.outer->multiply(R, inner, w.outer_bias, Activation::none, branch);
    update(outputs, OUTER, inner, F_, branch, D, D, memory[9]);
    add_norm<E>(between, branch, w.gain2, w.offset2, epsilon_, none, R, D, y_RD, nullptr, normal, inverse);
}

void Stack::run(const LayerShape& shape, const LayerShape& last, const LayerWeights* weights, const std::vector<AdaptedRows>& adapted,
                const float* x_TD, float* y_TD) {
    const long T = shape.tokens, D = D_;
    Pool<Workspace>::Loan workspace(workspaces_);
    Scratch* memory = workspace->memory;
    float* states = memory[8].get<float>(T * D);
    const float* x = x_TD;
    for (size_t n = 0; n < layers_.size(); n++) {
        const LayerShape& s = n + 1 == layers_.size() ? last : shape;
        // Layers may run in place: each reads its whole input before it writes output, except the residual, row by row.
        float* y = &s == &last && !last.rows ? y_TD : states;
        std::vector<AdaptedRows> here = adapted;
        for (AdaptedRows& part : here) part.updates += n * MATRICES;
        if (kind_ == Kind::f32)
            layer<float>(memory, s, layers_[n], weights[n], here, x, y);
        else
            layer<Low>(memory, s, layers_[n], weights[n], here, x, y);
        x = y;
    }
    if (!last.rows) return;
    std::fill(y_TD, y_TD + T * D, 0.f);
    for (long r = 0; r < last.outputs; r++) std::copy(states + r * D, states + (r + 1) * D, y_TD + last.rows[r] * D);
}

}  // namespace ernie
