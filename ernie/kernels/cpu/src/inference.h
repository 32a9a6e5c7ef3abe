// A stack of post-norm Transformer layers for inference: no dropout, nothing kept, weights laid out beforehand.
#pragma once
#include "layer.h"
#include "packed.h"
#include "threads.h"

namespace ernie {

// To be used by one thread at a time.
class Stack {
public:
    // The matrices (in, out) are copied; biases and norms are read where they are at every run.
    Stack(Kind, long width, long inner, Activation, float epsilon, const std::vector<LayerWeights>&);
    // Whether the matrices are still what they were when they were copied, as far as fingerprint.h tells.
    bool is_of(const LayerWeights*) const;
    // The outputs of the last layer, (T, D), zero where none is wanted: `last` says where, the other layers use `shape`.
    void run(const LayerShape& shape, const LayerShape& last, const LayerWeights*, const float* x_TD, float* y_TD);

private:
    struct Packed {
        std::unique_ptr<PackedWeight> qkv, out, inner, outer;
    };
    std::vector<uint64_t> fingerprints(const LayerWeights*) const;
    template <class E>
    void layer(const LayerShape&, const Packed&, const LayerWeights&, const float* x_TD, float* y_RD);

    const Kind kind_;
    const long D_, F_;
    const Activation activation_;
    const float epsilon_;
    Arena weights_;
    std::vector<Packed> layers_;
    std::vector<uint64_t> fingerprints_;
    Scratch memory_[9];
};

}  // namespace ernie
