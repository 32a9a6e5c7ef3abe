// A WaveNet, without what gradients need: van den Oord et al. (2016), arXiv 1609.03499, section 2.
//
// A tile of rows goes through a whole layer while it is in the core's cache.
#pragma once
#include <cstdint>

namespace ernie {

// L `layers` of C `channels`, each of which sees `taps` vectors that are its dilation apart, the oldest first, and H
// `features` of a conditioner; they have K `skips`.  A layer has five `weights`: of the gates (taps C + H, 2 C) and their
// bias, to the output (C, K), to the next layer (C, C) and their bias; the last two are null in the last layer.
// A sample times `first` (C,) plus `first_bias` is the first layer's vector.  `inner` (K, K) and `out` (K, O), with their
// biases, each after a rectifier, map the sum of the layers' outputs to the O `outputs`.
struct WaveNet {
    long layers, channels, taps, features, skips, outputs;
    const int64_t* dilations;
    const float* const* weights;
    const float *first, *first_bias, *inner, *inner_bias, *out, *out_bias;
};

// The outputs (R, O) of the last R of S samples (S,), whose conditioner is (S, H).
void wavenet(const WaveNet&, long S, const float* samples, const float* conditioner, float* outputs);

}  // namespace ernie
