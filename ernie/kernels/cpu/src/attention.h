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

// `ldq` and so on are the strides between rows of q, k, v and their gradients, in elements.
template <class E>
void attention_forward(const AttentionShape&, const Dropout&, const E* q, long ldq, const E* k, long ldk, const E* v, long ldv,
                       E* mixed_TD, float* logsum_TH);
template <class E>
void attention_backward(const AttentionShape&, const Dropout&, const E* q, long ldq, const E* k, long ldk, const E* v, long ldv,
                        const E* mixed_TD, const float* logsum_TH, const E* grad_TD, E* dq, long lddq, E* dk, long lddk,
                        E* dv, long lddv);

}  // namespace ernie
