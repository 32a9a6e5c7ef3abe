#include "dilated.h"

#include <atomic>
#include <memory>
#include <vector>

#include "rows.h"
#include "small_product.h"

namespace ernie {
namespace {

constexpr long TILE = 8 * ROWS;

long tiles(long rows) { return (rows + TILE - 1) / TILE; }

// The right factor of a product, its N columns padded with zeros to whole SIMD vectors.
struct Factor {
    long K = 0, N = 0, W = 0;
    std::vector<float> packed;

    Factor() = default;
    Factor(const float* from, long rows, long columns) : Factor(rows, columns) {
        for (long k = 0; k < K; k++) std::copy_n(from + k * N, N, &packed[k * W]);
    }
    // The transpose of `columns` rows of a matrix that has `rows` columns.
    static Factor transposed(const float* from, long rows, long columns) {
        Factor found(rows, columns);
        for (long n = 0; n < columns; n++)
            for (long k = 0; k < rows; k++) found.packed[k * found.W + n] = from[n * rows + k];
        return found;
    }
    // x (rows, K) times this, into or added to y, whose rows are W long.
    void multiply(const float* x, long stride, long rows, float* y, bool add) const {
        small_product<float>(x, stride, rows, packed.data(), W, W, K, y, W, add);
    }
    // The same for y (rows, N) without padding; `padded` holds as many rows with it.
    void multiply(const float* x, long stride, long rows, float* y, bool add, float* padded) const {
        if (W == N) return multiply(x, stride, rows, y, add);
        multiply(x, stride, rows, padded, false);
        for (long i = 0; i < rows; i++)
            for (long c = 0; c < N; c += LANES) {
                const Mask m = first(N - c);
                const Vec product = load(padded + i * W + c);
                store(y + i * N + c, add ? load(y + i * N + c, m) + product : product, m);
            }
    }

private:
    Factor(long rows, long columns) : K(rows), N(columns), W(round_up(columns, LANES)), packed(size_t(rows * W)) {}
};

// The columns of gates: for each vector of channels all rows, with its columns of tanh and of sigmoid side by side.
std::vector<float> paired(const float* from, long rows, long C) {
    std::vector<float> found(size_t(2 * rows * round_up(C, LANES)));
    for (long c = 0; c < C; c++)
        for (long i = 0; i < rows; i++)
            for (long half = 0; half < 2; half++)
                found[2 * (c / LANES * rows + i) * LANES + half * LANES + c % LANES] = from[(2 * i + half) * C + c];
    return found;
}

struct Forward {
    GatedLayer of;
    std::vector<float> mix, mix_bias;
    Factor skip, residual, residual_bias;

    explicit Forward(const GatedLayer& layer)
        : of(layer),
          mix(paired(layer.mix, layer.taps * layer.channels + layer.features, layer.channels)),
          mix_bias(paired(layer.mix_bias, 1, layer.channels)),
          skip(layer.skip, layer.channels, layer.skips) {
        if (layer.residual) residual = {layer.residual, layer.channels, layer.channels}, residual_bias = {layer.residual_bias, 1, layer.channels};
    }
};

// Columns of the gates' input: rows that are `stride` apart.
struct Part {
    const float* rows;
    long stride, columns;
};

// M rows of tanh(a) sigmoid(b) for the vector of channels at c; a and b stay in registers, and go to `inner` unless null.
template <int M>
void gate_rows(const std::vector<Part>& parts, long i, const float* mix, const float* bias, float* gated, long W, float* inner, long C, long c) {
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
    for (int m = 0; m < M; m++) store(gated + (i + m) * W + c, gate(a[m], b[m]));
    if (!inner) return;
    for (int m = 0; m < M; m++) {
        store(inner + 2 * (i + m) * C + c, a[m], first(C - c));
        store(inner + 2 * (i + m) * C + C + c, b[m], first(C - c));
    }
}

template <int M, class... Rest>
void gate_some(long rows, const std::vector<Part>& parts, long i, Rest... rest) {
    if constexpr (M > 0) {
        if (rows == M)
            gate_rows<M>(parts, i, rest...);
        else
            gate_some<M - 1>(rows, parts, i, rest...);
    }
}

// What a thread needs for a tile.
struct Tile {
    std::vector<Part> parts;
    std::vector<float> gated, padded;
    explicit Tile(const GatedLayer& layer)
        : parts(layer.taps + 1),
          gated(TILE * round_up(layer.channels, LANES)),
          padded(TILE * round_up(std::max(layer.channels, layer.skips), LANES)) {}
};

// The rows of a layer's output from `from` on, of P; `conditioner` begins with the row of the first of them.
void forward_tile(const Forward& layer, Tile& tile, long from, long P, long R, const float* x, const float* conditioner, bool add, float* inner,
                  float* next, float* sums) {
    const GatedLayer& of = layer.of;
    const long C = of.channels, W = round_up(C, LANES), H = of.features, K = of.skips, inputs = of.taps * C + H;
    const long rows = std::min(TILE, P - from);
    for (long tap = 0; tap < of.taps; tap++) tile.parts[tap] = {x + (from + tap * of.dilation) * C, C, C};
    tile.parts[of.taps] = {conditioner + from * H, H, H};
    for (long c = 0; c < W; c += LANES)
        for (long i = 0; i < rows; i += ROWS)
            gate_some<ROWS>(std::min<long>(ROWS, rows - i), tile.parts, i, layer.mix.data() + 2 * c * inputs, layer.mix_bias.data() + 2 * c,
                            tile.gated.data(), W, inner ? inner + 2 * from * C : nullptr, C, c);
    const long unseen = std::min(rows, std::max(0L, P - R - from));  // rows before the first output
    layer.skip.multiply(tile.gated.data() + unseen * W, W, rows - unseen, sums + (from + unseen - (P - R)) * K, add, tile.padded.data());
    if (!next) return;
    for (long i = from; i < from + rows; i++)
        for (long c = 0; c < C; c += LANES) {
            const Mask m = first(C - c);
            store(next + i * C + c, load(x + (i + of.shift()) * C + c, m) + load(&layer.residual_bias.packed[c]), m);
        }
    layer.residual.multiply(tile.gated.data(), W, rows, next + from * C, true, tile.padded.data());
}

void rectify(float* x, long count) {
    for (long i = 0; i < count; i += LANES) store(x + i, max(zero(), load(x + i, first(count - i))), first(count - i));
}

// Each of the rows of y becomes the bias.
void repeat(const Factor& bias, long rows, float* y) {
    for (long i = 0; i < rows; i++) std::copy_n(bias.packed.data(), bias.W, y + i * bias.W);
}

}  // namespace

void gated_forward(const GatedLayer& of, long N, long S, long A, long R, const float* x, const float* conditioner, bool add, float* inner,
                   float* next, float* sums) {
    const Forward layer(of);
    const long C = of.channels, P = S - of.shift();
#pragma omp parallel if (N * P * C > FEW)
    {
        Tile tile(of);
#pragma omp for schedule(static)
        for (long t = 0; t < N * tiles(P); t++) {
            const long n = t / tiles(P), from = t % tiles(P) * TILE;
            forward_tile(layer, tile, from, P, R, x + n * S * C, conditioner + (n * A + A - P) * of.features, add, inner + 2 * n * P * C,
                         next ? next + n * P * C : nullptr, sums + n * R * of.skips);
        }
    }
}

void gated_backward(const GatedLayer& of, long N, long S, long R, const float* inner, const float* grad, const float* grad_next, float* grad_inner,
                    float* grad_x) {
    const long C = of.channels, W = round_up(C, LANES), K = of.skips, P = S - of.shift();
    const Factor skip = Factor::transposed(of.skip, K, C);
    const Factor residual = grad_next ? Factor::transposed(of.residual, C, C) : Factor();
    std::vector<Factor> taps;
    for (long tap = 0; grad_x && tap < of.taps; tap++) taps.push_back(Factor::transposed(of.mix + 2 * tap * C * C, 2 * C, C));
#pragma omp parallel if (N * P * C > FEW)
    {
        std::vector<float> memory(TILE * W);
        float* const tile = memory.data();
#pragma omp for schedule(static)
        for (long t = 0; t < N * tiles(P); t++) {
            const long n = t / tiles(P), from = t % tiles(P) * TILE, rows = std::min(TILE, P - from);
            const long unseen = std::min(rows, std::max(0L, P - R - from));
            std::fill_n(tile, unseen * W, 0.f);
            skip.multiply(grad + (n * R + from + unseen - (P - R)) * K, K, rows - unseen, tile + unseen * W, false);
            if (grad_next) residual.multiply(grad_next + (n * P + from) * C, C, rows, tile, true);
            for (long i = 0; i < rows; i++)
                for (long c = 0; c < C; c += LANES) {
                    const Mask m = first(C - c);
                    const long at = 2 * (n * P + from + i) * C + c;
                    const Vec a = tanh(load(inner + at, m)), b = sigmoid(load(inner + at + C, m)), d = load(tile + i * W + c);
                    store(grad_inner + at, d * b * (all(1.f) - a * a), m);
                    store(grad_inner + at + C, d * a * b * (all(1.f) - b), m);
                }
        }
#pragma omp for schedule(static)
        for (long t = 0; t < (grad_x ? N * tiles(S) : 0); t++) {
            const long n = t / tiles(S), from = t % tiles(S) * TILE, rows = std::min(TILE, S - from);
            for (long i = 0; i < rows; i++)
                for (long c = 0; c < W; c += LANES) {
                    const long row = from + i - of.shift();
                    store(tile + i * W + c, grad_next && row >= 0 ? load(grad_next + (n * P + row) * C + c, first(C - c)) : zero());
                }
            for (long tap = 0; tap < of.taps; tap++) {  // of rows that saw these
                const long offset = tap * of.dilation, begin = std::max(from, offset), end = std::min(from + rows, offset + P);
                if (begin < end)
                    taps[tap].multiply(grad_inner + 2 * (n * P + begin - offset) * C, 2 * C, end - begin, tile + (begin - from) * W, true);
            }
            for (long i = 0; i < rows; i++)
                for (long c = 0; c < C; c += LANES) store(grad_x + (n * S + from + i) * C + c, load(tile + i * W + c), first(C - c));
        }
    }
}

namespace {

constexpr long BLOCK = 8 * TILE;  // rows of a sequence that go through all layers while their vectors are in the core's cache

// A network's weights, packed.
struct Packed {
    std::vector<Forward> layers;
    Factor inner, inner_bias, out, out_bias;
    long C, H, K, O, longest = 0, reach = 0;

    explicit Packed(const WaveNet& net)
        : inner(net.inner, net.layer->skips, net.layer->skips),
          inner_bias(net.inner_bias, 1, net.layer->skips),
          out(net.out, net.layer->skips, net.outputs),
          out_bias(net.out_bias, 1, net.outputs),
          C(net.layer->channels),
          H(net.layer->features),
          K(net.layer->skips),
          O(net.outputs) {
        for (long l = 0; l < net.layers; l++) {
            layers.emplace_back(net.layer[l]);
            reach += net.layer[l].shift();
            longest = std::max(longest, net.layer[l].shift());
        }
    }
};

// Where the vectors of `rows` rows are on their way: those that go into a layer, after its past, and those that come out.
struct Way {
    std::unique_ptr<float[]> now, next, sums, past;
    Way(const Packed& net, long rows)
        : now(new float[size_t((net.longest + rows) * net.C)]),
          next(new float[size_t((net.longest + rows) * net.C)]),
          sums(new float[size_t(rows * net.K)]),
          past(new float[size_t(net.reach * net.C)]) {}
};

// What each thread needs by itself.
struct Own {
    Tile tile;
    std::vector<float> hidden, last;
    explicit Own(const Packed& net) : tile(net.layers.front().of), hidden(TILE * net.inner.W), last(TILE * net.out.W) {}
};

// Runs a part of the work a number of times: by all threads of the team, or by this one.
template <class Part>
void share(bool by_all, long times, Part part) {
    if (by_all) {
#pragma omp for schedule(static)
        for (long i = 0; i < times; i++) part(i);
    } else {
        for (long i = 0; i < times; i++) part(i);
    }
}

// The same, where no thread has to wait for what the others do.
template <class Part>
void share_apart(bool by_all, long times, Part part) {
    if (by_all) {
#pragma omp for schedule(static) nowait
        for (long i = 0; i < times; i++) part(i);
    } else {
        for (long i = 0; i < times; i++) part(i);
    }
}

// One sequence of S samples, `most` rows after rows; see `wavenet`.
void run(const WaveNet& net, const Packed& packed, Way& way, Own& own, bool by_all, long most, long S, const float* samples,
         const float* conditioner, const float* past, float* outputs, float* after) {
    const long C = packed.C, K = packed.K, O = packed.O;
    std::vector<long> before(packed.layers.size());  // rows of each layer's past that are there
    if (past)
        for (size_t l = 0; l < before.size(); l++) before[l] = packed.layers[l].of.shift();
    for (long begin = 0; begin < S; begin += most) {
        const long rows = std::min(most, S - begin);
        const bool is_last = begin + rows == S;
        const float* const from = begin ? way.past.get() : past;
        float* const to = is_last ? after : way.past.get();
        long R = rows;
        for (size_t l = 0; l < before.size(); l++) R = std::max(0L, before[l] + R - packed.layers[l].of.shift());
        float *now = way.now.get(), *next = way.next.get();
        share_apart(by_all, before[0], [&](long i) { std::copy_n(from + i * C, C, now + i * C); });
        share(by_all, rows, [&](long i) {
            for (long c = 0; c < C; c += LANES) {
                const Mask m = first(C - c);
                const Vec sample = all(samples[begin + i]);
                store(now + (before[0] + i) * C + c, fma(sample, load(net.first + c, m), load(net.first_bias + c, m)), m);
            }
        });
        long in = rows, offset = 0;  // of the layer's past in that of all layers
        for (size_t l = 0; l < before.size(); l++) {
            const Forward& layer = packed.layers[l];
            const long shift = layer.of.shift(), there = before[l] + in, P = std::max(0L, there - shift), kept = std::min(shift, there);
            const long below = l + 1 < before.size() ? before[l + 1] : 0;
            if (to) share_apart(by_all, kept, [&](long i) { std::copy_n(now + (there - kept + i) * C, C, to + (offset + i) * C); });
            offset += shift;
            share_apart(by_all, below, [&](long i) { std::copy_n(from + (offset + i) * C, C, next + i * C); });
            const float* const given = conditioner + (begin + rows - P) * packed.H;
            float* const on = layer.of.residual ? next + below * C : nullptr;
            share(by_all, tiles(P), [&](long t) { forward_tile(layer, own.tile, t * TILE, P, R, now, given, l > 0, nullptr, on, way.sums.get()); });
            before[l] = kept, in = P;
            std::swap(now, next);
        }
        share(by_all, tiles(R), [&](long t) {
            const long first_row = t * TILE, count = std::min(TILE, R - first_row);
            float *const sums = way.sums.get() + first_row * K, *const hidden = own.hidden.data(), *const last = own.last.data();
            rectify(sums, count * K);
            repeat(packed.inner_bias, count, hidden);
            packed.inner.multiply(sums, K, count, hidden, true);
            rectify(hidden, count * packed.inner.W);
            repeat(packed.out_bias, count, last);
            packed.out.multiply(hidden, packed.inner.W, count, last, true);
            for (long i = 0; i < count; i++) std::copy_n(last + i * packed.out.W, O, outputs + (first_row + i) * O);
        });
        outputs += R * O;
    }
}

}  // namespace

void wavenet(const WaveNet& net, long N, long S, long A, const float* samples, const float* conditioner, const float* past, float* outputs,
             float* after) {
    const Packed packed(net);
    const long R = past ? S : std::max(0L, S - packed.reach), kept = packed.reach * packed.C;
    Way together(packed, S);  // costs nothing where it stays unused
    std::atomic<long> next{0};
#pragma omp parallel if (N * S * packed.C > FEW)
    {
        const long threads = omp_get_num_threads(), alone = N / threads * threads;
        Own own(packed);
        const auto one = [&](Way& way, bool by_all, long most, long n) {
            run(net, packed, way, own, by_all, most, S, samples + n * S, conditioner + (n * A + A - S) * packed.H, past ? past + n * kept : nullptr,
                outputs + n * R * packed.O, after ? after + n * kept : nullptr);
        };
        if (alone) {  // a sequence for each thread, whose next one is there for whoever is free: none waits for another
            Way way(packed, BLOCK);
            for (long n; (n = next++) < alone;) one(way, false, BLOCK, n);
        }
        for (long n = alone; n < N; n++) one(together, true, S, n);
    }
}

}  // namespace ernie
