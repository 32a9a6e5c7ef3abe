// Autoregressive sampling from a WaveNet: Ping et al. (2019), arXiv 1807.07281, section 3.
//
// One thread for a group of sounds: a sample takes some microseconds, too short for others to help.  The weights stay in the
// core's cache, and are read once for a sample of every sound of the group.
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

// Draws S samples of each of N sounds that follow `last` (N,) with `noise` (N, S) or, if that is null, processes those in
// `samples`.  `rows` are for each sound the vectors of each layer ((taps - 1) dilation + S, C), of which those before the
// samples are given, and `conditioning` (N, S, L, 2 C) is what the conditioner adds to each product.  What is drawn for a sound
// depends on no other.
void draw(const Network&, long N, long S, const float* last, const float* conditioning, const float* noise, float* const* rows, float* samples);

}  // namespace ernie
