#include "dilated.h"

#include <memory>
#include <vector>

#include "rows.h"
#include "small_product.h"

namespace ernie {
namespace {

constexpr long TILE = 8 * ROWS;

// The rows of a matrix of C columns, padded with zeros to W columns.
std::vector<float> padded(const float* from, long rows, long C, long W) {
    std::vector<float> found(size_t(rows * W));
    for (long i = 0; i < rows; i++) std::copy_n(from + i * C, C, found.data() + i * W);
    return found;
}

// The rows of two blocks of C columns: for every vector of columns, all its rows, those of the blocks side by side.
std::vector<float> paired(const float* from, long rows, long C, long W) {
    std::vector<float> found(size_t(2 * rows * W));
    for (long c = 0; c < C; c++)
        for (long i = 0; i < rows; i++)
            for (long block = 0; block < 2; block++)
                found[2 * (c / LANES * rows + i) * LANES + block * LANES + c % LANES] = from[(2 * i + block) * C + c];
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

// Columns of the gates' input: rows that are `stride` apart.
struct Part {
    const float* rows;
    long stride, columns;
};

// M rows of tanh(a) sigmoid(b), from row i of the parts on, for a vector of channels; a and b stay in registers.
template <int M>
void gated_rows(const std::vector<Part>& parts, long i, const float* mix, const float* bias, float* gated, long W) {
    Vec a[M], b[M];
    for (int m = 0; m < M; m++) a[m] = load(bias), b[m] = load(bias + LANES);
    for (const Part& part : parts) {
        const float* const x = part.rows + i * part.stride;
        for (long k = 0; k < part.columns; k++, mix += 2 * LANES) {
            const Vec of_a = load(mix), of_b = load(mix + LANES);
            for (int m = 0; m < M; m++) {
                const Vec value = all(x[m * part.stride + k]);
                a[m] = fma(value, of_a, a[m]), b[m] = fma(value, of_b, b[m]);
            }
        }
    }
    for (int m = 0; m < M; m++) store(gated + m * W, gate(a[m], b[m]));
}

template <int M>
void gated_tile(long rows, const std::vector<Part>& parts, long i, const float* mix, const float* bias, float* gated, long W) {
    if constexpr (M > 0) {
        if (rows == M)
            gated_rows<M>(parts, i, mix, bias, gated, W);
        else
            gated_tile<M - 1>(rows, parts, i, mix, bias, gated, W);
    }
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
        layers.push_back({paired(w[0], I, C, W), paired(w[1], 1, C, W), padded(w[2], C, K, KW), {}, {}, long(net.dilations[l])});
        if (w[3]) layers[l].residual = padded(w[3], C, C, W), layers[l].residual_bias = padded(w[4], 1, C, W);
        R -= (net.taps - 1) * layers[l].dilation;
    }
    const auto first = padded(net.first, 1, C, W), first_bias = padded(net.first_bias, 1, C, W);
    const auto inner = padded(net.inner, K, K, KW), inner_bias = padded(net.inner_bias, 1, K, KW);
    const auto out = padded(net.out, K, O, OW), out_bias = padded(net.out_bias, 1, O, OW);
    const std::unique_ptr<float[]> vectors(new float[size_t(2 * S * W)]), summed(new float[size_t(R * KW)]);
    float* const sums = summed.get();
#pragma omp parallel if (S * C > FEW)
    {
        std::vector<Part> parts(net.taps + 1);
        std::vector<float> gated(TILE * W), hidden(TILE * KW), last(TILE * OW);
        float *now = vectors.get(), *next = now + S * W;
#pragma omp for schedule(static)
        for (long s = 0; s < S; s++)
            for (long c = 0; c < W; c += LANES)
                store(now + s * W + c, fma(all(samples[s]), load(first.data() + c), load(first_bias.data() + c)));
        long length = S;
        for (const Layer& layer : layers) {
            const long shift = (net.taps - 1) * layer.dilation;
            length -= shift;
#pragma omp for schedule(static)
            for (long from = 0; from < length; from += TILE) {
                const long rows = std::min(TILE, length - from);
                for (long tap = 0; tap < net.taps; tap++) parts[tap] = {now + (from + tap * layer.dilation) * W, W, C};
                parts[net.taps] = {conditioner + (S - length + from) * H, H, H};
                for (long c = 0; c < W; c += LANES)
                    for (long i = 0; i < rows; i += ROWS)
                        gated_tile<ROWS>(std::min<long>(ROWS, rows - i), parts, i, layer.mix.data() + 2 * c * I,
                                         layer.mix_bias.data() + 2 * c, gated.data() + i * W + c, W);
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
