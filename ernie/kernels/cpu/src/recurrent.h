// A layer of gated recurrent units (GRU) over packed sequences, as one loop over time.
//
// Each thread keeps the weights of its own units in its cache all the time, and the threads synchronize once per step: the
// idea of "Persistent RNNs" (Diamos et al., ICML 2016), with a core's cache in place of a GPU's registers.
#pragma once
#include "memory.h"
#include "vec.h"

namespace ernie {

// N sequences, H units.  `order` lists the sequences, longest first; `backward` runs from the last row of each to its
// first.  `begin` (N, H) are the states before the first step, null for zeros.
struct Recurrence {
    long sequences, units;
    const int64_t *offsets, *order;  // (N + 1,), (N,)
    int backward;
    const float* begin;
};

// x (T, 3 H) are the inputs of the reset gate, the update gate and the candidate, U (H, 3 H) and b (3 H,) give what the
// state adds to them; h (T, H).  Cho et al. (2014), arXiv 1406.1078, with the reset after the product, as in Paddle and cuDNN:
//   r = sigmoid(x_r + h U_r + b_r), z = sigmoid(x_z + h U_z + b_z), n = tanh(x_n + r (h U_n + b_n)), h' = (1 - z) n + z h
// Saved for the backward pass in `kept` (T, 4 H): r, z, n and h U_n + b_n.
void gru_forward(const Recurrence&, const float* x, const float* U, const float* b, float* h, float* kept);
// From the gradient of h, computes those of x and of what the state adds, (T, 3 H) each, and of the first states, (N, H).
void gru_backward(const Recurrence&, const float* U, const float* h, const float* kept, const float* grad, float* dx, float* dadded,
                  float* dbegin);

}  // namespace ernie
