// Attention forward and backward, computed for each pair of a query and a key.
#include "library.h"
#include "memory.h"

namespace {

enum class Sees { all, causal, window, anything };

struct Case {
    std::vector<int32_t> queries{0}, keys{0};  // offsets
    std::vector<int32_t> first, last;
    long heads, size;
    Drop drop;

    long T() const { return queries.back(); }
    long S() const { return keys.back(); }
    long D() const { return heads * size; }
};

Case make_case(std::vector<long> lengths, std::vector<long> key_lengths, long heads, long size, Sees sees, float dropout) {
    Case c;
    c.heads = heads, c.size = size, c.drop = {dropout, 77 + uint64_t(size), 1};
    for (size_t n = 0; n < lengths.size(); n++) {
        c.queries.push_back(int32_t(c.queries.back() + lengths[n]));
        c.keys.push_back(int32_t(c.keys.back() + key_lengths[n]));
        for (long t = 0; t < lengths[n] && sees != Sees::all; t++) {
            const long S = key_lengths[n];
            const long from = sees == Sees::causal ? 0 : sees == Sees::window ? std::max(0L, t - 5) : between(-2, S + 2);
            const long to = sees == Sees::anything ? between(-2, S + 2) : std::min(S, t + 1 + (sees == Sees::window ? 5 : 0));
            c.first.push_back(int32_t(from)), c.last.push_back(int32_t(to));
        }
    }
    begin("attention, %zu sequences, %ld queries, %ld keys, %ld heads of %ld, mask %d, dropout %g", lengths.size(), c.T(), c.S(), heads,
          size, int(sees), dropout);
    return c;
}

struct Wanted {
    Doubles mixed, logsum, dq, dk, dv;
    // The size of the gradients to q and k without cancellation, to which their errors are relative.
    Doubles dq_size, dk_size;
};

Wanted reference(const Case& c, double scale, const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& grad) {
    const long D = c.D(), K = c.size;
    Wanted w{Doubles(c.T() * D), Doubles(c.T() * c.heads), Doubles(c.T() * D), Doubles(c.S() * D), Doubles(c.S() * D),
             Doubles(c.T() * D), Doubles(c.S() * D)};
    auto dot = [&](const Doubles& a, long i, const Doubles& b, long j, long h) {
        double total = 0;
        for (long d = h * K; d < (h + 1) * K; d++) total += a[i * D + d] * b[j * D + d];
        return total;
    };
    auto add_size = [&](Doubles& to, long i, double factor, const Doubles& from, long j, long h) {
        for (long d = h * K; d < (h + 1) * K; d++) to[i * D + d] += factor * std::abs(from[j * D + d]);
    };
    auto add = [&](Doubles& to, long i, double factor, const Doubles& from, long j, long h) {
        for (long d = h * K; d < (h + 1) * K; d++) to[i * D + d] += factor * from[j * D + d];
    };
    for (size_t n = 0; n + 1 < c.queries.size(); n++)
        for (long h = 0; h < c.heads; h++)
            for (long t = c.queries[n]; t < c.queries[n + 1]; t++) {
                const long s0 = c.keys[n], S = c.keys[n + 1] - s0;
                const long from = c.first.empty() ? 0 : std::max<long>(c.first[t], 0);
                const long to = c.first.empty() ? S : std::min<long>(c.last[t], S);
                double divisor = 0, highest = -INFINITY, slope = 0;
                if (from >= to) continue;  // fully masked: zeros
                for (long j = from; j < to; j++) highest = std::max(highest, scale * dot(q, t, k, s0 + j, h));
                for (long j = from; j < to; j++) divisor += std::exp(scale * dot(q, t, k, s0 + j, h) - highest);
                const double logsum = w.logsum[t * c.heads + h] = highest + std::log(divisor);
                auto weight = [&](long j) { return std::exp(scale * dot(q, t, k, s0 + j, h) - logsum); };
                auto kept = [&](long j) { return c.drop.factor(uint32_t(t), j, uint32_t(h)); };
                for (long j = from; j < to; j++) {
                    const double factor = weight(j) * kept(j);
                    add(w.mixed, t, factor, v, s0 + j, h);
                    add(w.dv, s0 + j, factor, grad, t, h);
                    slope += factor * dot(grad, t, v, s0 + j, h);
                }
                for (long j = from; j < to; j++) {
                    const double through = kept(j) * dot(grad, t, v, s0 + j, h), d = scale * weight(j) * (through - slope);
                    const double size = scale * weight(j) * (std::abs(through) + std::abs(slope));
                    add_size(w.dq_size, t, size, k, s0 + j, h);
                    add_size(w.dk_size, s0 + j, size, q, t, h);
                    add(w.dq, t, d, k, s0 + j, h);
                    add(w.dk, s0 + j, d, q, t, h);
                }
            }
    return w;
}

template <class E>
void run(const Library& library, const Case& c) {
    const long Q = c.T() * c.D(), S = c.S() * c.D();
    const double tolerance = low<E> ? 0.01 : 2e-5;
    const float scale = float(1 / std::sqrt(double(c.size)));
    Array<E> q(Q), k(S), v(S), grad(Q), mixed(Q), dq(Q), dk(S), dv(S);
    Array<float> logsum(c.T() * c.heads);
    Array<int32_t> queries(long(c.queries.size())), keys(long(c.keys.size())), first(long(c.first.size())), last(long(c.last.size()));
    std::copy(c.queries.begin(), c.queries.end(), queries.data());
    std::copy(c.keys.begin(), c.keys.end(), keys.data());
    std::copy(c.first.begin(), c.first.end(), first.data());
    std::copy(c.last.begin(), c.last.end(), last.data());
    const Doubles in[] = {fill(q, 1.5), fill(k, 1.5), fill(v), fill(grad)};
    const Wanted wanted = reference(c, scale, in[0], in[1], in[2], in[3]);

    const bool masked = !c.first.empty();
    const ernie::AttentionShape shape{long(c.queries.size()) - 1, c.heads, c.size, queries, keys, masked ? first.data() : nullptr,
                                      masked ? last.data() : nullptr, scale};
    succeeds(library.call("attention_forward", low<E>, &shape, c.drop.probability, c.drop.seed, q.data(), k.data(), v.data(), mixed.data(),
                          logsum.data()));
    expect("mixed", mixed.data(), wanted.mixed, tolerance);
    expect("logsum", logsum.data(), wanted.logsum, tolerance);
    succeeds(library.call("attention_backward", low<E>, &shape, c.drop.probability, c.drop.seed, q.data(), k.data(), v.data(), mixed.data(),
                          logsum.data(), grad.data(), dq.data(), dk.data(), dv.data()));
    expect("dq", dq.data(), wanted.dq, tolerance, wanted.dq_size);
    expect("dk", dk.data(), wanted.dk, tolerance, wanted.dk_size);
    expect("dv", dv.data(), wanted.dv, tolerance);
}

}  // namespace

template <class E>
void test_attention(const Library& library) {
    for (long size : {1, 2, 7, 8, 15, 16, 17, 32, 33, 64, 65})
        for (Sees sees : {Sees::all, Sees::causal, Sees::window, Sees::anything})
            for (float dropout : {0.f, 0.3f}) {
                std::vector<long> lengths{1, between(1, 12), between(13, 70)}, others;
                for (size_t n = 0; n < lengths.size(); n++) others.push_back(between(1, 40));
                run<E>(library, make_case(lengths, sees == Sees::causal ? lengths : others, between(1, 3), size, sees, dropout));
            }
    // Sizes around a block of keys; more queries than a block of scores holds; no keys or no queries.
    for (long size : {9, 32})
        for (long length : {63, 64, 65, 127, 129}) run<E>(library, make_case({length}, {length}, 1, size, Sees::causal, 0.1f));
    run<E>(library, make_case({40}, {1500}, 1, 3, Sees::anything, 0.5f));
    run<E>(library, make_case({0, 3, 2}, {4, 0, 2}, 2, 5, Sees::all, 0.f));
}

template void test_attention<float>(const Library&);
template void test_attention<bf16>(const Library&);
