// A stack of post-norm Transformer layers for inference: no dropout, nothing saved for a backward pass, packed weights.
#pragma once
#include "layer.h"
#include "low_rank.h"
#include "packed.h"
#include "threads.h"

namespace ernie {

// Several threads may run it at once: each run has scratch memory of its own.
class Stack {
public:
    // Copies and packs the matrices (in, out); biases and norms are read from their own memory at every run.
    Stack(Kind, long width, long inner, Activation, float epsilon, const std::vector<LayerWeights>&);
    // Whether the matrices are unchanged since they were copied, according to their fingerprints (fingerprint.h).
    bool is_of(const LayerWeights*) const;
    // Writes the output of the last layer, (T, D), zero at tokens without output.  `last` is its shape, `shape` the others'.
    // `adapted` are rows whose matrices have updates, in ascending order.
    void run(const LayerShape& shape, const LayerShape& last, const LayerWeights*, const std::vector<AdaptedRows>& adapted, const float* x_TD,
             float* y_TD);

private:
    struct Packed {
        std::unique_ptr<PackedWeight> qkv, out, inner, outer;
    };
    std::vector<uint64_t> fingerprints(const LayerWeights*) const;
    struct Workspace {
        Scratch memory[10];
    };
    template <class E>
    void layer(Scratch* memory, const LayerShape&, const Packed&, const LayerWeights&, const std::vector<AdaptedRows>&, const float* x_TD,
               float* y_RD);

    const Kind kind_;
    const long D_, F_;
    const Activation activation_;
    const float epsilon_;
    Arena weights_;
    std::vector<Packed> layers_;
    std::vector<uint64_t> fingerprints_;
    Pool<Workspace> workspaces_;
};

}  // namespace ernie
