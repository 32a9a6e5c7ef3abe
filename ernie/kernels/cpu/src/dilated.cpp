#include "dilated.h"

#include <memory>
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
    long dilation;
};

// Each row of x becomes the row y.
void repeat(const std::vector<float>& y, long rows, float* x) {
    const long W = long(y.size());
    for (long i = 0; i < rows; i++)
        for (long c = 0; c < W; c += LANES) store(x + i * W + c, load(y.data() + c));
}

void rectify(float* x, long count) {
    for (long i = 0; i < count; i += LANES) store(x + i, max(zero(), load(x + i)));
}

}  // namespace

void wavenet(const WaveNet& net, long S, const float* samples, const float* conditioner, float* outputs) {
    const long C = net.channels, H = net.features, K = net.skips, O = net.outputs, I = net.taps * C + H;
    const long W = round_up(C, LANES), KW = round_up(K, LANES), OW = round_up(O, LANES);
    std::vector<Layer> layers;
    long R = S;
    for (long l = 0; l < net.layers; l++) {
        const float* const* w = net.weights + 5 * l;
        layers.push_back({padded(w[0], I, 2, C, W), padded(w[1], 1, 2, C, W), padded(w[2], C, 1, K, KW), {}, {}, long(net.dilations[l])});
        if (w[3]) layers[l].residual = padded(w[3], C, 1, C, W), layers[l].residual_bias = padded(w[4], 1, 1, C, W);
        R -= (net.taps - 1) * layers[l].dilation;
    }
    const auto first = padded(net.first, 1, 1, C, W), first_bias = padded(net.first_bias, 1, 1, C, W);
    const auto inner = padded(net.inner, K, 1, K, KW), inner_bias = padded(net.inner_bias, 1, 1, K, KW);
    const auto out = padded(net.out, K, 1, O, OW), out_bias = padded(net.out_bias, 1, 1, O, OW);
    const std::unique_ptr<float[]> vectors(new float[size_t(2 * S * W)]), summed(new float[size_t(R * KW)]);
    float* const sums = summed.get();
#pragma omp parallel if (S * C > FEW)
    {
        std::vector<float> gates(TILE * 2 * W), gated(TILE * W), hidden(TILE * KW), last(TILE * OW);
        float *now = vectors.get(), *next = now + S * W;
#pragma omp for schedule(static)
        for (long s = 0; s < S; s++)
            for (long c = 0; c < W; c += LANES)
                store(now + s * W + c, fma(all(samples[s]), load(first.data() + c), load(first_bias.data() + c)));
        long length = S;
        for (const Layer& layer : layers) {
            const long shift = (net.taps - 1) * layer.dilation;
            const float* const mix = layer.mix.data();
            length -= shift;
#pragma omp for schedule(static)
            for (long from = 0; from < length; from += TILE) {
                const long rows = std::min(TILE, length - from);
                repeat(layer.mix_bias, rows, gates.data());
                for (long tap = 0; tap < net.taps; tap++)
                    small_product<float>(now + (from + tap * layer.dilation) * W, W, rows, mix + tap * C * 2 * W, 2 * W, 2 * W, C,
                                         gates.data(), 2 * W, true);
                small_product<float>(conditioner + (S - length + from) * H, H, rows, mix + net.taps * C * 2 * W, 2 * W, 2 * W, H,
                                     gates.data(), 2 * W, true);
                for (long i = 0; i < rows; i++)
                    for (long c = 0; c < W; c += LANES) {
                        const float* at = gates.data() + i * 2 * W + c;
                        store(gated.data() + i * W + c, gate(load(at), load(at + W)));
                    }
                const long unseen = std::min(rows, std::max(0L, length - R - from));  // rows before the first output
                small_product<float>(gated.data() + unseen * W, W, rows - unseen, layer.skip.data(), KW, KW, C,
                                     sums + (from + unseen - (length - R)) * KW, KW, &layer != layers.data());
                if (layer.residual.empty()) continue;
                for (long i = from; i < from + rows; i++)
                    for (long c = 0; c < W; c += LANES)
                        store(next + i * W + c, load(now + (i + shift) * W + c) + load(layer.residual_bias.data() + c));
                small_product<float>(gated.data(), W, rows, layer.residual.data(), W, W, C, next + from * W, W, true);
            }
            std::swap(now, next);
        }
#pragma omp for schedule(static)
        for (long from = 0; from < R; from += TILE) {
            const long rows = std::min(TILE, R - from);
            rectify(sums + from * KW, rows * KW);
            repeat(inner_bias, rows, hidden.data());
            small_product<float>(sums + from * KW, KW, rows, inner.data(), KW, KW, K, hidden.data(), KW, true);
            rectify(hidden.data(), rows * KW);
            repeat(out_bias, rows, last.data());
            small_product<float>(hidden.data(), KW, rows, out.data(), OW, OW, K, last.data(), OW, true);
            for (long i = 0; i < rows; i++) std::copy_n(last.data() + i * OW, O, outputs + (from + i) * O);
        }
    }
}

}  // namespace ernie
