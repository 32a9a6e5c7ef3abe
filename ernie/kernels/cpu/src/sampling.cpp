#include "sampling.h"

#include <vector>

#include "rows.h"
#include "small_product.h"

namespace ernie {
namespace {

// Pads vectors of C elements, and the blocks of C columns of matrices, to whole SIMD vectors.
struct Widths {
    long C, W;
    explicit Widths(long channels) : C(channels), W(round_up(channels, LANES)) {}
    std::vector<float> packed(const float* from, long rows, long blocks) const {
        std::vector<float> found(size_t(rows * blocks * W));
        for (long r = 0; r < rows; r++)
            for (long b = 0; b < blocks; b++) std::copy_n(from + (r * blocks + b) * C, C, found.data() + (r * blocks + b) * W);
        return found;
    }
};

}  // namespace

void draw(const Network& net, long S, float last, const float* conditioning, const float* noise, float* const* rows, float* samples) {
    const long L = net.layers, C = net.channels, K = net.taps * C;
    const Widths widths(C);
    const long W = widths.W;
    const auto first = widths.packed(net.first, 2, 1), mix = widths.packed(net.mix, L * K, 2);
    const auto skip_residual = widths.packed(net.skip_residual, L * C, 2), residual_bias = widths.packed(net.residual_bias, L, 1);
    const auto inner = widths.packed(net.inner, C, 1), bias = widths.packed(net.inner_bias, 1, 1);
    std::vector<float> x(W), total(W), gated(W), inputs(K), outputs(2 * W), hidden(W);
    for (long s = 0; s < S; s++) {
        for (long i = 0; i < W; i += LANES) {
            store(&x[i], fma(all(last / net.loudness), load(&first[i]), load(&first[W + i])));
            store(&total[i], zero());
        }
        for (long l = 0; l < L; l++) {
            const long dilation = long(net.dilations[l]);
            float* layer_rows = rows[l] + s * C;  // the oldest input
            std::copy_n(x.data(), C, layer_rows + (net.taps - 1) * dilation * C);
            for (long tap = 0; tap < net.taps; tap++) std::copy_n(layer_rows + tap * dilation * C, C, &inputs[tap * C]);
            small_product<float>(inputs.data(), K, 1, &mix[l * K * 2 * W], 2 * W, 2 * W, K, outputs.data(), 2 * W, false);
            const float* added = conditioning + (s * L + l) * 2 * C;
            for (long i = 0; i < W; i += LANES) {
                const Mask m = ernie::first(C - i);
                store(&gated[i], gate(load(&outputs[i]) + load(added + i, m), load(&outputs[W + i]) + load(added + C + i, m)));
            }
            small_product<float>(gated.data(), C, 1, &skip_residual[l * C * 2 * W], 2 * W, 2 * W, C, outputs.data(), 2 * W, false);
            for (long i = 0; i < W; i += LANES) {
                store(&total[i], load(&total[i]) + load(&outputs[i]));
                store(&x[i], load(&x[i]) + load(&outputs[W + i]) + load(&residual_bias[l * W + i]));
            }
        }
        if (noise) {
            for (long i = 0; i < W; i += LANES) store(&total[i], max(zero(), load(&total[i])));
            small_product<float>(total.data(), C, 1, inner.data(), W, W, C, hidden.data(), W, false);
            float mean = net.out_bias[0], log_scale = net.out_bias[1];
            for (long i = 0; i < C; i++) {
                const float h = std::max(hidden[i] + bias[i], 0.f);  // in this order NaN stays NaN
                mean += h * net.out[2 * i];
                log_scale += h * net.out[2 * i + 1];
            }
            const float drawn = net.loudness * (mean + std::exp(log_scale) * noise[s]);
            samples[s] = std::min(std::max(drawn, -1.f), 1.f);  // as above
        }
        last = samples[s];
    }
}

}  // namespace ernie
