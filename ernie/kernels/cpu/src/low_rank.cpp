#include "low_rank.h"

#include "row_product.h"
#include "rows.h"

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
template void add_low_rank<float>(const LowRank&, const float*, long, long, float*, long, long, Scratch&);
#ifdef __AVX512BF16__
template void add_low_rank<bf16>(const LowRank&, const bf16*, long, long, bf16*, long, long, Scratch&);
#endif

}  // namespace ernie
