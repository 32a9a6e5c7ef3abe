// Autoregressive sampling from a WaveNet: Ping et al. (2019), arXiv 1807.07281, section 3.
//
// One thread: a sample takes some microseconds, too short for others to help.  The weights stay in the core's cache.
#pragma once
#include <cstdint>

namespace ernie {

// L `layers` of C `channels`, each of which sees `taps` vectors that are its dilation apart.  `first` (2, C), a weight and a
// bias, maps a sample divided by `loudness` to a vector.  `mix` (L, taps C, 2 C) has the oldest tap first.  `skip_residual`
// (L, C, 2 C) projects to the output of the stack and to the next layer, the latter with the bias `residual_bias` (L, C).
// `inner` (C, C) and `out` (C, 2) map the summed skip outputs to the mean and the log scale of the next sample.
struct Network {
    long layers, channels, taps;
    float loudness;
    const int64_t* dilations;
    const float *first, *mix, *skip_residual, *residual_bias, *inner, *inner_bias, *out, *out_bias;
};

// Draws S samples that follow `last` with `noise` (S,) or, if that is null, processes those in `samples`.  `rows` are the
// vectors of each layer ((taps - 1) dilation + S, C), of which those before the samples are given, and `conditioning`
// (S, L, 2 C) is what the conditioner adds to each product.
void draw(const Network&, long S, float last, const float* conditioning, const float* noise, float* const* rows, float* samples);

}  // namespace ernie
