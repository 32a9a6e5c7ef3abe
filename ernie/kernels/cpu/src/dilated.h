// Gated dilated convolutions, and a WaveNet of them: van den Oord et al. (2016), arXiv 1609.03499, section 2.
//
// A tile of rows goes through a whole layer while it is in the core's cache.  All matrices are row-major, without padding.
#pragma once
#include <cstdint>

namespace ernie {

// A layer of C `channels` sees `taps` vectors that are `dilation` apart, the oldest first, and H `features` of a conditioner.
// Its gates have the weights `mix` (taps C + H, 2 C) and a bias; `skip` (C, K) leads to the output, `residual` (C, C) with its
// bias to the next layer; they are null in the last layer.
struct GatedLayer {
    long channels, taps, features, skips, dilation;
    const float *mix, *mix_bias, *skip, *residual, *residual_bias;
    long shift() const { return (taps - 1) * dilation; }  // by how many rows fewer come out than go in
};

// One layer, for N sequences of S vectors x (N, S, C), of which P = S - shift come out; the conditioner (N, A, H) has A >= P rows.
// Writes what the gates are made of, `inner` (N, P, 2 C), and the next layer's vectors (N, P, C) unless null; the last R rows
// of the output are written to `sums` (N, R, K) or, with `add`, added.
void gated_forward(const GatedLayer&, long N, long S, long A, long R, const float* x, const float* conditioner, bool add, float* inner,
                   float* next, float* sums);

// The gradients of `inner` and, unless null, of x, from those of the sums and, unless null, of the next layer's vectors.
void gated_backward(const GatedLayer&, long N, long S, long R, const float* inner, const float* grad, const float* grad_next, float* grad_inner,
                    float* grad_x);

// A sample times `first` (C,) plus `first_bias` is the vector of the first of the layers.  `inner` (K, K) and `out` (K, O), with
// their biases, each after a rectifier, map the sum of the layers' outputs to the O `outputs`.
struct WaveNet {
    long layers;
    const GatedLayer* layer;
    long outputs;
    const float *first, *first_bias, *inner, *inner_bias, *out, *out_bias;
};

// The outputs (N, R, O) of the last R of S samples (N, S), whose conditioner is the last S rows of each of (N, A, H), without
// what gradients need.  Each layer sees `shift` of its vectors before the current one: `past`, (N, P, C) unless null, has those
// before the first sample, P of all layers, the first layer's first.  With it R = S, and otherwise R = S - P.  Those before the
// next sample are written to `after`, (N, P, C) unless null.
void wavenet(const WaveNet&, long N, long S, long A, const float* samples, const float* conditioner, const float* past, float* outputs,
             float* after);

}  // namespace ernie
