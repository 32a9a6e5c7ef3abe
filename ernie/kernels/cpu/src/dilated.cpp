#include "dilated.h"

#include <vector>

#include "rows.h"
#include "small_product.h"

namespace ernie {
namespace {

constexpr long TILE = 8 * ROWS;

// The rows of a matrix of `blocks` blocks of C columns, each block padded with zeros to W columns.
std::vector<float> padded(const float* from, long rows, long blocks, long C, long W) {
    std::vector<float> found(size_t(rows * blocks * W));
    for (long i = 0; i < rows * blocks; i++) std::copy_n(from + i * C, C, found.data() + i * W);
    return found;
}

struct Layer {
    std::vector<float> mix, mix_bias, skip, residual, residual_bias;
};

}  // namespace

void gated_stack(const GatedStack& net, long S, const float* x, const float* conditioner, float* total) {
    const long C = net.channels, H = net.features, K = net.skips, I = net.taps * C + H;
    const long W = round_up(C, LANES), KW = round_up(K, LANES);
    long R = S;
    for (long l = 0; l < net.layers; l++) R -= (net.taps - 1) * net.dilations[l];
    auto now = padded(x, S, 1, C, W);
    std::vector<float> next(now.size()), sums(size_t(R * KW));
    long length = S;
    for (long l = 0; l < net.layers; l++) {
        const float* const* w = net.weights + 5 * l;
        const bool last = !w[3];
        const Layer layer{padded(w[0], I, 2, C, W), padded(w[1], 1, 2, C, W), padded(w[2], C, 1, K, KW),
                          last ? std::vector<float>() : padded(w[3], C, 1, C, W), last ? std::vector<float>() : padded(w[4], 1, 1, C, W)};
        const long dilation = long(net.dilations[l]), shift = (net.taps - 1) * dilation;
        length -= shift;
#pragma omp parallel if (length * C > FEW)
        {
            std::vector<float> inputs(TILE * I), inner(TILE * 2 * W), gated(TILE * W);
#pragma omp for schedule(static)
            for (long from = 0; from < length; from += TILE) {
                const long rows = std::min(TILE, length - from);
                for (long i = 0; i < rows; i++) {
                    float* row = inputs.data() + i * I;
                    for (long tap = 0; tap < net.taps; tap++) std::copy_n(now.data() + (from + i + tap * dilation) * W, C, row + tap * C);
                    std::copy_n(conditioner + (S - length + from + i) * H, H, row + net.taps * C);
                    std::copy_n(layer.mix_bias.data(), 2 * W, inner.data() + i * 2 * W);
                }
                small_product<float>(inputs.data(), I, rows, layer.mix.data(), 2 * W, 2 * W, I, inner.data(), 2 * W, true);
                for (long i = 0; i < rows; i++)
                    for (long c = 0; c < W; c += LANES) {
                        const float* at = inner.data() + i * 2 * W + c;
                        store(gated.data() + i * W + c, tanh(load(at)) * sigmoid(load(at + W)));
                    }
                const long unseen = std::min(rows, std::max(0L, length - R - from));  // rows before the first output
                small_product<float>(gated.data() + unseen * W, W, rows - unseen, layer.skip.data(), KW, KW, C,
                                     sums.data() + (from + unseen - (length - R)) * KW, KW, true);
                if (last) continue;
                for (long i = from; i < from + rows; i++)
                    for (long c = 0; c < W; c += LANES)
                        store(next.data() + i * W + c, load(now.data() + (i + shift) * W + c) + load(layer.residual_bias.data() + c));
                small_product<float>(gated.data(), W, rows, layer.residual.data(), W, W, C, next.data() + from * W, W, true);
            }
        }
        now.swap(next);
    }
    for (long r = 0; r < R; r++) std::copy_n(sums.data() + r * KW, K, total + r * K);
}

}  // namespace ernie
