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

// The weights, padded, once for all sounds.
struct Padded {
    Widths widths;
    std::vector<float> first, mix, skip_residual, residual_bias, inner, bias;
    explicit Padded(const Network& net)
        : widths(net.channels),
          first(widths.packed(net.first, 2, 1)),
          mix(widths.packed(net.mix, net.layers * net.taps * net.channels, 2)),
          skip_residual(widths.packed(net.skip_residual, net.layers * net.channels, 2)),
          residual_bias(widths.packed(net.residual_bias, net.layers, 1)),
          inner(widths.packed(net.inner, net.channels, 1)),
          bias(widths.packed(net.inner_bias, 1, 1)) {}
};

// `draw` for the sounds of one thread: every product has a row for each.
void draw_group(const Network& net, const Padded& padded, long N, long S, const float* last, const float* conditioning, const float* noise,
                float* const* rows, float* samples) {
    const long L = net.layers, C = net.channels, K = net.taps * C, W = padded.widths.W;
    std::vector<float> x(N * W), total(N * W), gated(N * W), inputs(N * K), outputs(2 * N * W), hidden(N * W), before(last, last + N);
    for (long s = 0; s < S; s++) {
        for (long n = 0; n < N; n++)
            for (long i = 0; i < W; i += LANES) {
                store(&x[n * W + i], fma(all(before[n] / net.loudness), load(&padded.first[i]), load(&padded.first[W + i])));
                store(&total[n * W + i], zero());
            }
        for (long l = 0; l < L; l++) {
            const long dilation = long(net.dilations[l]);
            for (long n = 0; n < N; n++) {
                float* layer_rows = rows[n * L + l] + s * C;  // the oldest input
                std::copy_n(&x[n * W], C, layer_rows + (net.taps - 1) * dilation * C);
                for (long tap = 0; tap < net.taps; tap++) std::copy_n(layer_rows + tap * dilation * C, C, &inputs[n * K + tap * C]);
            }
            small_product<float>(inputs.data(), K, N, &padded.mix[l * K * 2 * W], 2 * W, 2 * W, K, outputs.data(), 2 * W, false);
            for (long n = 0; n < N; n++) {
                const float* const added = conditioning + ((n * S + s) * L + l) * 2 * C;
                const float* const own = &outputs[2 * n * W];
                for (long i = 0; i < W; i += LANES) {
                    const Mask m = ernie::first(C - i);
                    store(&gated[n * W + i], gate(load(own + i) + load(added + i, m), load(own + W + i) + load(added + C + i, m)));
                }
            }
            small_product<float>(gated.data(), W, N, &padded.skip_residual[l * C * 2 * W], 2 * W, 2 * W, C, outputs.data(), 2 * W, false);
            for (long n = 0; n < N; n++) {
                const float* const own = &outputs[2 * n * W];
                for (long i = 0; i < W; i += LANES) {
                    store(&total[n * W + i], load(&total[n * W + i]) + load(own + i));
                    store(&x[n * W + i], load(&x[n * W + i]) + load(own + W + i) + load(&padded.residual_bias[l * W + i]));
                }
            }
        }
        if (noise) {
            for (long i = 0; i < N * W; i += LANES) store(&total[i], max(zero(), load(&total[i])));
            small_product<float>(total.data(), W, N, padded.inner.data(), W, W, C, hidden.data(), W, false);
        }
        for (long n = 0; n < N; n++) {
            if (noise) {
                float mean = net.out_bias[0], log_scale = net.out_bias[1];
                for (long i = 0; i < C; i++) {
                    const float h = std::max(hidden[n * W + i] + padded.bias[i], 0.f);  // in this order NaN stays NaN
                    mean += h * net.out[2 * i];
                    log_scale += h * net.out[2 * i + 1];
                }
                const float drawn = net.loudness * (mean + std::exp(log_scale) * noise[n * S + s]);
                samples[n * S + s] = std::min(std::max(drawn, -1.f), 1.f);  // as above
            }
            before[n] = samples[n * S + s];
        }
    }
}

}  // namespace

void draw(const Network& net, long N, long S, const float* last, const float* conditioning, const float* noise, float* const* rows, float* samples) {
    const Padded padded(net);
#pragma omp parallel if (N > 1)
    {
        const long threads = omp_get_num_threads(), thread = omp_get_thread_num();
        const long from = N * thread / threads, to = N * (thread + 1) / threads;
        if (from < to)
            draw_group(net, padded, to - from, S, last + from, conditioning + from * S * net.layers * 2 * net.channels,
                       noise ? noise + from * S : nullptr, rows + from * net.layers, samples + from * S);
    }
}

}  // namespace ernie
