// Attention within each sequence of a packed batch.
#pragma once
#include "dropout.h"

namespace ernie {

// T queries and S keys, N pairs of a query and a key sequence, H heads of K units each.
struct AttentionShape {
    long sequences, heads, size;
    const int32_t* query_offsets;  // (N + 1,)
    const int32_t* key_offsets;    // (N + 1,)
    const int32_t* first;          // (T,): the first key that a query sees, counted within its sequence; null: it sees all keys
    const int32_t* last;           // (T,): one past the last key
    float scale;
};

// Keys and values that lie in runs of consecutive rows: those of the n-th sequence are the runs offsets[n] to
// offsets[n + 1], one after the other.  The strides between rows are in elements.
template <class E>
struct Runs {
    const int32_t* offsets;  // (N + 1,)
    const E* const* keys;    // (R,): the first row of each run
    const E* const* values;  // (R,)
    const int32_t* rows;     // (R,)
    long key_stride, value_stride;
};

// Attention to the rows of runs; the result has the same bits however the rows are cut into runs.  Types of half a word
// need an even number of rows in all runs of a sequence but the last.  `logsum_TH` may be null.
template <class E>
void attention_over_runs(const AttentionShape&, const Dropout&, const E* q, long ldq, const Runs<E>&, E* mixed_TD, float* logsum_TH);

// `ldq` and so on are the strides between rows of q, k, v and their gradients, in elements.
template <class E>
void attention_forward(const AttentionShape&, const Dropout&, const E* q, long ldq, const E* k, long ldk, const E* v, long ldv,
                       E* mixed_TD, float* logsum_TH);
template <class E>
void attention_backward(const AttentionShape&, const Dropout&, const E* q, long ldq, const E* k, long ldk, const E* v, long ldv,
                        const E* mixed_TD, const float* logsum_TH, const E* grad_TD, E* dq, long lddq, E* dk, long lddk,
                        E* dv, long lddv);

}  // namespace ernie
