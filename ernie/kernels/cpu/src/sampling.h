// A WaveNet that makes one sample after the other, each from those before it: Ping et al. (2019), arXiv 1807.07281, section 3.
//
// One thread: a sample takes some microseconds, in which no other could be of help.  The weights stay in its core's cache.
#pragma once
#include <cstdint>

namespace ernie {

// `layers` of `channels` (L, C), each of which sees `taps` vectors that lie its dilation apart.  A sample, in `loudness`, is
// made a vector by `first` (2, C), weight and bias.  `mix` (L, taps C, 2 C) has the oldest tap first.  `leads` (L, C, 2 C) lead
// out of the stack and on to the next layer, whose bias is `on_bias` (L, C).  Through `inner` (C, C) and `out` (C, 2) the sum of
// what leads out becomes the mean of the next sample and the logarithm of its deviation.
struct Network {
    long layers, channels, taps;
    float loudness;
    const int64_t* dilations;
    const float *first, *mix, *leads, *on_bias, *inner, *inner_bias, *out, *out_bias;
};

// S samples that follow `last`: drawn by `noise` (S,), or, where that is null, those that are in `samples` already.  `rows` are
// the vectors of each layer ((taps - 1) dilation + S, C), the first of which are those before, and `told` (S, L, 2 C) is what the
// conditioner adds to each product.
void draw(const Network&, long S, float last, const float* told, const float* noise, float* const* rows, float* samples);

}  // namespace ernie
