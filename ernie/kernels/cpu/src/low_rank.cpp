#include "low_rank.h"

#include "product.h"
#include "row_product.h"

namespace ernie {

template <class E>
void add_low_rank(const LowRank& update, const E* x, long M, long K, E* y, long ldy, long N, Scratch& scratch) {
    constexpr bool is_float = std::is_same_v<E, float>;
    float* const narrow = scratch.get<float>(M * update.rank + (is_float ? 0 : M * (K + N)));
    float* const factor = narrow + M * update.rank;
    const float* left;
    if constexpr (is_float) {
        left = x;
    } else {
        for (long i = 0; i < M * K; i += LANES) store(factor + i, load(x + i, first(M * K - i)), first(M * K - i));
        left = factor;
    }
    row_product(M, update.rank, K, left, K, update.a, update.rank, false, nullptr, narrow, update.rank, false);
    if constexpr (is_float) {
        row_product(M, N, update.rank, narrow, update.rank, update.b, N, false, nullptr, y, ldy, true);
    } else {
        float* const added = factor + M * K;
        row_product(M, N, update.rank, narrow, update.rank, update.b, N, false, nullptr, added, N, false);
        for (long m = 0; m < M; m++)
            for (long n = 0; n < N; n += LANES) {
                const Mask there = first(N - n);
                E* const out = y + m * ldy + n;
                store(out, load(out, there) + load(added + m * N + n, there), there);
            }
    }
}

namespace {

template <class E>
void scaled(const float* from, long count, float scale, E* to) {
    for (long i = 0; i < count; i += LANES) store(to + i, load(from + i, first(count - i)) * all(scale), first(count - i));
}

}  // namespace

template <class E>
void factor_gradients(const Factors& f, const E* x, long M, long K, const E* grad, long ldg, long N) {
    static thread_local Scratch memory;
    const long r = f.rank;
    E* const narrow = memory.get<E>(M * r + r * std::max(K, N));
    E* const factor = narrow + M * r;
    scaled(f.a, K * r, f.scale, factor);
    product(type_of<E>, type_of<E>, M, r, K, {x, K}, {factor, r}, nullptr, narrow, r, false);
    product(type_of<E>, Type::f32, r, N, M, {narrow, r, true}, {grad, ldg}, nullptr, f.b_grad, N, false);
    scaled(f.b, r * N, f.scale, factor);
    product(type_of<E>, type_of<E>, M, r, N, {grad, ldg}, {factor, N, true}, nullptr, narrow, r, false);
    product(type_of<E>, Type::f32, K, r, M, {x, K, true}, {narrow, r}, nullptr, f.a_grad, r, false);
}

void set_from_factors(const float* pretrained, const float* a, const float* b, float* weight, bf16* copy, long D, long E, long rank,
                      float scale) {
#pragma omp parallel for schedule(static) if (D * E > 16384)
    for (long d = 0; d < D; d++)
        for (long e = 0; e < E; e += LANES) {
            const Mask there = first(E - e);
            Vec sum = zero();
            for (long r = 0; r < rank; r++) sum = fma(all(a[d * rank + r]), load(b + r * E + e, there), sum);
            const Vec w = fma(sum, all(scale), load(pretrained + d * E + e, there));
            store(weight + d * E + e, w, there);
#ifdef __AVX512BF16__
            if (copy) store(copy + d * E + e, w, there);
#else
            (void)copy;
#endif
        }
}

template void add_low_rank<float>(const LowRank&, const float*, long, long, float*, long, long, Scratch&);
template void factor_gradients<float>(const Factors&, const float*, long, long, const float*, long, long);
#ifdef __AVX512BF16__
template void factor_gradients<bf16>(const Factors&, const bf16*, long, long, const bf16*, long, long);
template void add_low_rank<bf16>(const LowRank&, const bf16*, long, long, bf16*, long, long, Scratch&);
#endif

}  // namespace ernie
