// Attention over packed sequences, forward and backward, without materializing the attention matrix.
//
// As FlashAttention (Dao et al., 2022, arXiv 2205.14135) keeps the scores of a block of queries on the chip, this keeps
// them in the core's cache, and saves one number per query for the backward pass: the log of its softmax's denominator.
// Masks are data: each query sees an interval of keys, which covers full, causal, window, chunk, prefix and wait-k masks.
// A thread processes one head of one sequence at a time, so that no two threads write to the same memory.
#include "attention.h"

#include "small_product.h"
#include "tiles.h"

namespace ernie {
namespace {

constexpr long KEYS = Dropout::BLOCK;  // keys per block in the backward pass
constexpr long SCORES = 24576;         // scores per block of queries, at most: 96 kB of floats

// Rows that consist of whole words, as products read them, to a multiple of `unit`: the caller's, or a zero-padded copy if
// these are not.
template <class E>
const E* whole_words(const E* X, long& ld, long rows, long size, long unit, Scratch& scratch) {
    constexpr long STEP = Pairing<E>::STEP;
    if (size % STEP == 0 && rows % unit == 0) return X;
    long wide = round_up(size, STEP);
    E* copy = scratch.get<E>(round_up(rows, unit) * wide);
    std::fill(copy + rows * wide, copy + round_up(rows, unit) * wide, E{});
    for (long r = 0; r < rows; r++) {
        std::memcpy(copy + r * wide, X + r * ld, size * sizeof(E));
        std::memset(copy + r * wide + size, 0, (wide - size) * sizeof(E));
    }
    ld = wide;
    return copy;
}

template <class E>
void store_row(E* to, const float* from, float factor, long size) {
    for (long d = 0; d < size; d += LANES) store(to + d, load(from + d) * all(factor), first(size - d));
}

struct Interval {
    long first, last;
};
inline Interval seen(const AttentionShape& a, long query, long keys) {
    if (!a.first) return {0, keys};
    return {std::max<long>(a.first[query], 0), std::min<long>(a.last[query], keys)};
}

// The lanes of keys j, j + 1, ... that the query sees.
inline Mask seen_from(Interval sees, long j) {
    return both(first(sees.last - j), at_least(lanes(), all(uint32_t(std::max<long>(sees.first - j, 0)))));
}

// The denominator of a softmax, divided by e^top.
struct Denominator {
    float top, sum;
};

// Turns scores into unnormalized weights over the keys from low to high: e^(scale s - top), zero if masked or dropped.
template <class E>
Denominator weigh(const float* scores, E* weights, long low, long high, Interval sees, float scale, const Dropout& dropout,
                  uint32_t query, uint32_t head) {
    Vec highest = all(-INFINITY);
    for (long j = sees.first / LANES * LANES; j < sees.last; j += LANES)
        highest = max(highest, select(seen_from(sees, j), load(scores + j), all(-INFINITY)));
    const float top = maximum(highest) * scale;
    Vec total = zero();
    for (long block = low; block < high; block += Dropout::BLOCK)
        for (long from = 0; from < 16; from += LANES) {
            Mask kept[4];
            if (dropout.on()) dropout.columns(query, uint32_t(block / Dropout::BLOCK), uint32_t(from), kept, head);
            for (int w = 0; w < 4; w++) {
                const long j = block + 16 * w + from;
                if (j >= high) break;
                Vec e = keep(seen_from(sees, j), exp(fma(load(scores + j), all(scale), all(-top))));
                total = total + e;
                store(weights + j, dropout.on() ? keep(kept[w], e) : e);
            }
        }
    return {top, sum(total)};
}

// Packs the keys and values of head h, which follow one another in the runs of sequence n; beyond them are zeros.
template <class E>
void pack_runs(const Runs<E>& runs, long n, long column, long size, typename Pairing<E>::Word* keys, long width,
               typename Pairing<E>::Word* values, long K) {
    const long end = runs.offsets[n + 1];
    long done = 0;
    for (long r = runs.offsets[n]; r < end; done += runs.rows[r], r++) {
        const long columns = r + 1 == end ? width - done : runs.rows[r];
        pack_transposed(runs.keys[r] + column, runs.key_stride, runs.rows[r], size, keys + done, columns, width);
        pack(runs.values[r] + column, runs.value_stride, runs.rows[r], size, values + done / Pairing<E>::STEP * K, K);
    }
    std::fill(values + packed_rows<E>(done) * K, values + packed_rows<E>(width) * K, typename Pairing<E>::Word());
}

// Whether a single query, as in decoding, reads keys and values where they lie: packing them would take longer than using
// them once.  Sums have the order of the packed products, so that the result has the same bits.
template <class E>
constexpr bool reads_in_place() {
#ifdef __AVX512F__
    return Pairing<E>::STEP == 1;
#else
    return false;
#endif
}

// The scores of a query against those keys of a head from low to high that there are.
template <class E>
void scores_in_place(const E* query, const Runs<E>& runs, long n, long column, long size, long low, long high, float* scores) {
#ifdef __AVX512F__
    long start = 0;  // of the run
    for (long run = runs.offsets[n]; run < runs.offsets[n + 1]; start += runs.rows[run], run++) {
        const long rows = runs.rows[run], stride = runs.key_stride;
        if (start + rows <= low || start >= high) continue;
        for (long r = 0; r < rows; r += LANES) {
            Vec total = zero();
            for (long d = 0; d < size; d += LANES) {
                const E* corner = runs.keys[run] + r * stride + column + d;
                const Mask there = first(size - d);
                __m512i square[16];
                for (long i = 0; i < 16; i++)
                    square[i] = r + i < rows ? _mm512_maskz_loadu_epi32(there.m, corner + i * stride) : _mm512_setzero_si512();
                transpose(square);
                for (long k = 0; k < std::min<long>(16, size - d); k++)
                    total = fma(all(query[d + k]), Vec{_mm512_castsi512_ps(square[k])}, total);
            }
            store(scores + start + r, total, first(rows - r));
        }
    }
#endif
}

// The sum of a head's values from low to high by their weights.
template <class E>
void mixed_in_place(const E* weights, const Runs<E>& runs, long n, long column, long size, long low, long high, float* mixed) {
    for (long d = 0; d < size; d += 4 * LANES) {
        Vec total[4] = {zero(), zero(), zero(), zero()};
        long start = 0;
        for (long run = runs.offsets[n]; run < runs.offsets[n + 1]; start += runs.rows[run], run++)
            for (long r = std::max(0L, low - start); r < std::min<long>(runs.rows[run], high - start); r++) {
                const E* row = runs.values[run] + r * runs.value_stride + column + d;
                const Vec weight = all(weights[start + r]);
                for (int i = 0; i < 4; i++) total[i] = fma(weight, load(row + i * LANES, first(size - d - i * LANES)), total[i]);
            }
        for (int i = 0; i < 4; i++)
            if (d + i * LANES < size) store(mixed + d + i * LANES, total[i]);
    }
}

}  // namespace

template <class E>
void attention_over_runs(const AttentionShape& a, const Dropout& dropout, const E* q, long ldq, const Runs<E>& runs, E* mixed_TD,
                         float* logsum_TH) {
    typedef typename Pairing<E>::Word Word;
    const long D = a.heads * a.size, K = round_up(a.size, LANES);
    // All rows take the same way, so that their results do not depend on where in a block they are.
    const bool tiles = in_tiles<E>() && a.size % (2 * TILE) == 0;
    const long unit = tiles ? TILE : ROWS, most = (tiles ? 4 : 8) * unit;  // rows of a block
#pragma omp parallel
    {
        if (tiles) begin_tiles();
        const auto product = [&](const E* A, long lda, long M, const Word* B, long ldb, long N, long inner, float* C, long ldc) {
            if constexpr (sizeof(E) == 2)
                if (tiles) return small_tiles_product(A, lda, round_up(M, TILE), B, ldb, N, round_up(inner, 2 * TILE), C, ldc);
            small_product<E>(A, lda, M, B, ldb, N, inner, C, ldc, false);
        };
        static thread_local Scratch keys_memory, values_memory, scores_memory, weights_memory, mixed_memory, copy_memory;
// Paddle's OpenMP runtime knows no nonmonotonic loops.
#pragma omp for schedule(monotonic : dynamic, 1) collapse(2)
        for (long n = 0; n < a.sequences; n++)
            for (long h = 0; h < a.heads; h++) {
                const long t0 = a.query_offsets[n], T = a.query_offsets[n + 1] - t0, S = a.key_offsets[n + 1] - a.key_offsets[n];
                if (!T) continue;
                const long width = round_up(S, 2 * LANES);
                const long block = std::max(unit, std::min(most, SCORES / std::max<long>(width, 1) / unit * unit));
                Word* keys = keys_memory.get<Word>(packed_rows<E>(a.size) * width);
                Word* values = values_memory.get<Word>(packed_rows<E>(width) * K);
                float* scores = scores_memory.get<float>(block * width);
                E* weights = weights_memory.get<E>(block * width);
                float* mixed = mixed_memory.get<float>(block * K);
                const bool in_place = T == 1 && reads_in_place<E>();
                if (!in_place) pack_runs(runs, n, h * a.size, a.size, keys, width, values, K);
                for (long i0 = 0; i0 < T; i0 += block) {
                    const long M = std::min(block, T - i0);
                    // The range of keys that queries of this block see.
                    long low = S, high = 0;
                    for (long i = i0; i < i0 + M; i++) {
                        Interval sees = seen(a, t0 + i, S);
                        low = std::min(low, sees.first), high = std::max(high, sees.last);
                    }
                    low = std::min(low, high) / Dropout::BLOCK * Dropout::BLOCK, high = std::min(round_up(high, 2 * LANES), width);
                    long stride = ldq;
                    const E* queries = whole_words(q + (t0 + i0) * ldq + h * a.size, stride, M, a.size, tiles ? TILE : 1, copy_memory);
                    if constexpr (reads_in_place<E>())
                        if (in_place) scores_in_place(queries, runs, n, h * a.size, a.size, low, high, scores);
                    if (!in_place) product(queries, stride, M, keys + low, width, high - low, a.size, scores + low, width);
                    float factors[std::max(8L * ROWS, 4 * TILE)];
                    for (long i = 0; i < M; i++) {
                        const long t = t0 + i0 + i;
                        const Interval sees = seen(a, t, S);
                        Denominator found{0.f, 1.f};
                        factors[i] = 0.f;
                        if (sees.first < sees.last) {
                            found = weigh(scores + i * width, weights + i * width, low, high, sees, a.scale, dropout, uint32_t(t), uint32_t(h));
                            factors[i] = dropout.scale() / found.sum;
                        } else {  // a query that sees nothing gets zeros
                            std::fill(weights + i * width + low, weights + i * width + high, E{});
                        }
                        if (logsum_TH) logsum_TH[t * a.heads + h] = found.top + std::log(found.sum);
                    }
                    if constexpr (reads_in_place<E>())
                        if (in_place) mixed_in_place(weights, runs, n, h * a.size, a.size, low, std::min(S, high), mixed);
                    if (!in_place)
                        product(weights + low, width, M, values + low / Pairing<E>::STEP * K, K, K, std::min(S, high) - low, mixed, K);
                    for (long i = 0; i < M; i++)
                        store_row(mixed_TD + (t0 + i0 + i) * D + h * a.size, mixed + i * K, factors[i], a.size);
                }
            }
        if (tiles) end_tiles();
    }
}

template <class E>
void attention_forward(const AttentionShape& a, const Dropout& dropout, const E* q, long ldq, const E* k, long ldk, const E* v,
                       long ldv, E* mixed_TD, float* logsum_TH) {
    std::vector<const E*> keys(a.sequences), values(a.sequences);
    std::vector<int32_t> offsets(a.sequences + 1), rows(a.sequences);
    for (long n = 0; n < a.sequences; n++) {  // each sequence is one run
        keys[n] = k + a.key_offsets[n] * ldk, values[n] = v + a.key_offsets[n] * ldv;
        offsets[n + 1] = int32_t(n + 1), rows[n] = a.key_offsets[n + 1] - a.key_offsets[n];
    }
    const Runs<E> runs{offsets.data(), keys.data(), values.data(), rows.data(), ldk, ldv};
    attention_over_runs(a, dropout, q, ldq, runs, mixed_TD, logsum_TH);
}

template <class E>
void attention_backward(const AttentionShape& a, const Dropout& dropout, const E* q, long ldq, const E* k, long ldk, const E* v,
                        long ldv, const E* mixed_TD, const float* logsum_TH, const E* grad_TD, E* dq, long lddq, E* dk,
                        long lddk, E* dv, long lddv) {
    typedef typename Pairing<E>::Word Word;
    const long D = a.heads * a.size, K = round_up(a.size, LANES), words = packed_rows<E>(a.size);
#pragma omp parallel
    {
        static thread_local Scratch memory[14];
#pragma omp for schedule(monotonic : dynamic, 1) collapse(2)
        for (long n = 0; n < a.sequences; n++)
            for (long h = 0; h < a.heads; h++) {
                const long t0 = a.query_offsets[n], s0 = a.key_offsets[n];
                const long T = a.query_offsets[n + 1] - t0, S = a.key_offsets[n + 1] - s0;
                const long width = round_up(T, 2 * LANES);  // lanes run over queries
                const E *qh = q + t0 * ldq + h * a.size, *gh = grad_TD + t0 * D + h * a.size, *mh = mixed_TD + t0 * D + h * a.size;
                Word* q_columns = memory[0].get<Word>(words * width);
                Word* g_columns = memory[1].get<Word>(words * width);
                Word* q_rows = memory[2].get<Word>(packed_rows<E>(width) * K);
                Word* g_rows = memory[3].get<Word>(packed_rows<E>(width) * K);
                float* scores = memory[4].get<float>(KEYS * width);   // then, transposed, gradients of a block of keys
                float* slopes = memory[5].get<float>(KEYS * width);
                E* dropped = memory[6].get<E>(KEYS * width);
                E* slope = memory[7].get<E>(KEYS * width);
                Word* slope_rows = memory[8].get<Word>(packed_rows<E>(KEYS) * width);
                float* dq_rows = memory[9].get<float>(T * K);
                float* out = memory[10].get<float>(KEYS * K);
                Word* k_rows = memory[11].get<Word>(packed_rows<E>(KEYS) * K);
                float* row = memory[12].get<float>(2 * width);
                float *logsum = row, *delta = row + width;
                pack_transposed(qh, ldq, T, a.size, q_columns, width);
                pack_transposed(gh, D, T, a.size, g_columns, width);
                pack(qh, ldq, T, a.size, q_rows, K);
                pack(gh, D, T, a.size, g_rows, K);
                std::fill(dq_rows, dq_rows + T * K, 0.f);
                for (long i = 0; i < width; i++) {
                    Vec dot = zero();
                    if (i < T)
                        for (long d = 0; d < a.size; d += LANES) {
                            Mask m = first(a.size - d);
                            dot = fma(load(gh + i * D + d, m), load(mh + i * D + d, m), dot);
                        }
                    delta[i] = sum(dot);
                    logsum[i] = i < T ? logsum_TH[(t0 + i) * a.heads + h] : 0.f;
                }
                for (long j0 = 0; j0 < S; j0 += KEYS) {
                    const long M = std::min(KEYS, S - j0);
                    // The range of queries that see keys of this block.
                    long low = 0, high = T;
                    if (a.first) {
                        auto touches = [&](long i) { return a.first[t0 + i] < j0 + M && a.last[t0 + i] > j0; };
                        while (low < T && !touches(low)) low++;
                        while (high > low && !touches(high - 1)) high--;
                    }
                    if (low >= high) low = high = 0;
                    low = low / LANES * LANES / Pairing<E>::STEP * Pairing<E>::STEP, high = round_up(high, LANES);
                    long key_stride = ldk, value_stride = ldv;
                    const E* kh = whole_words(k + (s0 + j0) * ldk + h * a.size, key_stride, M, a.size, 1, memory[13]);
                    if (high > low)
                        small_product<E>(kh, key_stride, M, q_columns + low, width, high - low, a.size, scores + low, width, false);
                    const E* vh = whole_words(v + (s0 + j0) * ldv + h * a.size, value_stride, M, a.size, 1, memory[13]);
                    if (high > low)
                        small_product<E>(vh, value_stride, M, g_columns + low, width, high - low, a.size, slopes + low, width, false);
                    for (long i = low; i < high; i += LANES) {
                        const Mask in = first(T - i);
                        const Vec ls = load(logsum + i), de = load(delta + i);
                        Ints from = all(0u), to = all(uint32_t(S));
                        if (a.first) from = load(a.first + t0 + i, in), to = load(a.last + t0 + i, in);
                        for (long l = 0; l < 16; l++) {
                            if (l >= M) break;
                            Mask kept[4];
                            if (dropout.on()) dropout.rows(uint32_t(t0 + i), uint32_t(j0 / KEYS), uint32_t(l), kept, uint32_t(h));
                            for (int w = 0; w < 4; w++) {
                                const long j = 16 * w + l;
                                if (j >= M) break;
                                Mask m = in;
                                if (a.first) {
                                    Ints key = all(uint32_t(j0 + j));
                                    m = both(m, both(at_most(from, key), below(key, to)));
                                }
                                Vec p = keep(m, exp(fma(load(scores + j * width + i), all(a.scale), zero() - ls)));
                                Vec dp = load(slopes + j * width + i), pd = p;
                                if (dropout.on()) {
                                    pd = keep(kept[w], p) * all(dropout.scale());
                                    dp = keep(kept[w], dp) * all(dropout.scale());
                                }
                                store(dropped + j * width + i, pd);
                                store(slope + j * width + i, p * (dp - de) * all(a.scale));
                            }
                        }
                    }
                    const long Q = high - low;
                    small_product<E>(dropped + low, width, M, g_rows + low / Pairing<E>::STEP * K, K, K, std::min(Q, std::max(T - low, 0L)), out, K, false);
                    for (long j = 0; j < M; j++) store_row(dv + (s0 + j0 + j) * lddv + h * a.size, out + j * K, 1.f, a.size);
                    small_product<E>(slope + low, width, M, q_rows + low / Pairing<E>::STEP * K, K, K, std::min(Q, std::max(T - low, 0L)), out, K, false);
                    for (long j = 0; j < M; j++) store_row(dk + (s0 + j0 + j) * lddk + h * a.size, out + j * K, 1.f, a.size);
                    if (high == low) continue;
                    // dQ = dS K, where dS is available transposed
                    pack(slope + low, width, M, Q, slope_rows, Q);
                    pack(k + (s0 + j0) * ldk + h * a.size, ldk, M, a.size, k_rows, K);
                    small_product_turned<E>(slope_rows, Q, std::min(Q, T - low), k_rows, K, K, M, dq_rows + low * K, K, true);
                }
                for (long i = 0; i < T; i++) store_row(dq + (t0 + i) * lddq + h * a.size, dq_rows + i * K, 1.f, a.size);
            }
    }
}

#define INSTANTIATE(E)                                                                                                       \
    template void attention_over_runs<E>(const AttentionShape&, const Dropout&, const E*, long, const Runs<E>&, E*, float*);  \
    template void attention_forward<E>(const AttentionShape&, const Dropout&, const E*, long, const E*, long, const E*, long, \
                                       E*, float*);                                                                          \
    template void attention_backward<E>(const AttentionShape&, const Dropout&, const E*, long, const E*, long, const E*,     \
                                        long, const E*, const float*, const E*, E*, long, E*, long, E*, long);
INSTANTIATE(float)
#ifdef __AVX512BF16__
INSTANTIATE(bf16)
#endif

}  // namespace ernie
