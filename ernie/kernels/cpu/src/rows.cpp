// Elementwise operations and LayerNorm, each in one pass over a row that stays in the cache.
//
// Sums over tokens are computed per chunk of rows, then over the chunks in order, whatever the number of threads.
#include "rows.h"

#include <vector>

#include "threads.h"

namespace ernie {
namespace {

// Calls `body(first, last, sums)` for each chunk of rows, with `width` sums of its own, and adds all of them up.
template <class Body>
void summed(long T, long width, float* total, const Body& body) {
    std::vector<float> parts(size_t(chunks(T) * width), 0.f);
#pragma omp parallel for schedule(static)
    for (long c = 0; c < chunks(T); c++) body(c * CHUNK, std::min(T, (c + 1) * CHUNK), parts.data() + c * width);
    constexpr long COLUMNS = 512;
#pragma omp parallel for schedule(static)
    for (long from = 0; from < width; from += COLUMNS)
        for (long i = from; i < std::min(width, from + COLUMNS); i += LANES) {
            Mask m = first(width - i);
            Vec sum = zero();
            for (long c = 0; c < chunks(T); c++) sum = sum + load(parts.data() + c * width + i, m);
            store(total + i, sum, m);
        }
}

inline void add_to(float* sums, Vec x, Mask m) { store(sums, load(sums, m) + x, m); }

inline Vec slope(Activation activation, Vec x) {
    Vec density;
    if (activation == Activation::gelu) {
        Vec share = normal_share(x, density);
        return fma(x * density, all(0.39894228f), share);
    }
    return activation == Activation::relu ? select(negative(zero() - x), all(1.f), zero()) : all(1.f);
}

// The dropout masks of a row's vectors, drawn for 64 columns at a time.
class RowMasks {
public:
    RowMasks(const Dropout& dropout, long row) : dropout_(dropout), row_(uint32_t(row)) {}
    Mask at(long column) {
        long block = column / Dropout::BLOCK;
        if (block != block_) {
            for (int part = 0; part < 16 / LANES; part++) dropout_.columns(row_, uint32_t(block), uint32_t(part * LANES), kept_[part]);
            block_ = block;
        }
        long inside = column % Dropout::BLOCK;
        return kept_[inside % 16 / LANES][inside / 16];
    }

private:
    const Dropout& dropout_;
    uint32_t row_;
    long block_ = -1;
    Mask kept_[16 / LANES][4];
};

}  // namespace

template <class E>
void clear_rows(E* x, long from, long to, long D) {
    std::fill(x + from * D, x + to * D, E{});
}

template <class E>
void convert(const float* x, E* y, long T, long D, long padded) {
#pragma omp parallel for schedule(static) if (T * D > FEW)
    for (long t = 0; t < T; t++)
        for (long i = t * D; i < (t + 1) * D; i += LANES) {
            Mask m = first((t + 1) * D - i);
            store(y + i, load(x + i, m), m);
        }
    clear_rows(y, T, padded, D);
}

template <class E>
void column_sum(const E* x, long T, long D, long ld, float* total) {
    summed(T, D, total, [&](long from, long to, float* sums) {
        for (long t = from; t < to; t++)
            for (long i = 0; i < D; i += LANES) {
                Mask m = first(D - i);
                add_to(sums + i, load(x + t * ld + i, m), m);
            }
    });
}

template <class E>
void activate(Activation activation, const E* u, E* y, long count) {
    constexpr long PART = 4096;
#pragma omp parallel for schedule(static)
    for (long from = 0; from < count; from += PART)
        for (long i = from; i < std::min(count, from + PART); i += LANES) {
            Mask m = first(count - i);
            store(y + i, apply(activation, load(u + i, m)), m);
        }
}

template <class E>
void activate_backward(Activation activation, const E* u, E* grad, long T, long F, float* bias) {
    summed(T, F, bias, [&](long from, long to, float* sums) {
        for (long t = from; t < to; t++)
            for (long i = 0; i < F; i += LANES) {
                Mask m = first(F - i);
                Vec d = load(grad + t * F + i, m) * slope(activation, load(u + t * F + i, m));
                store(grad + t * F + i, d, m);
                add_to(sums + i, d, m);
            }
    });
}

void gate(const float* u, long T, long C, float* y) {
#pragma omp parallel for schedule(static) if (T * C > FEW)
    for (long t = 0; t < T; t++)
        for (long i = 0; i < C; i += LANES) {
            Mask m = first(C - i);
            const float* at = u + 2 * t * C + i;
            store(y + t * C + i, gate(load(at, m), load(at + C, m)), m);
        }
}

template <class E>
void add_norm(const float* residual, const E* x, const float* gain, const float* offset, float epsilon, const Dropout& dropout,
              long T, long D, float* y, E* y_low, E* normal, float* inverse) {
#pragma omp parallel if (T * D > FEW)
    {
        static thread_local Scratch memory;
        float* row = memory.get<float>(round_up(D, LANES));
#pragma omp for schedule(static)
        for (long t = 0; t < T; t++) {
            const long at = t * D;
            RowMasks masks(dropout, t);
            Vec total = zero(), squares = zero();
            for (long i = 0; i < D; i += LANES) {
                Mask m = first(D - i);
                Vec z = residual ? load(residual + at + i, m) : zero();
                if (x) {
                    Vec branch = load(x + at + i, m);
                    if (dropout.on()) branch = keep(masks.at(i), branch) * all(dropout.scale());
                    z = z + branch;
                }
                store(row + i, z);
                total = total + z;
            }
            Vec mean = all(sum(total) / float(D));
            for (long i = 0; i < D; i += LANES) {
                Vec d = keep(first(D - i), load(row + i) - mean);
                squares = fma(d, d, squares);
            }
            inverse[t] = 1.f / std::sqrt(sum(squares) / float(D) + epsilon);
            for (long i = 0; i < D; i += LANES) {
                Mask m = first(D - i);
                Vec n = (load(row + i) - mean) * all(inverse[t]);
                store(normal + at + i, n, m);
                Vec out = fma(n, load(gain + i, m), load(offset + i, m));
                if (y) store(y + at + i, out, m);
                if (y_low) store(y_low + at + i, out, m);
            }
        }
    }
}

template <class E>
void add_norm_backward(const float* grad, const E* normal, const float* inverse, const float* gain, const Dropout& dropout, long T,
                       long D, float* dsum, E* dx, float* dgain, float* doffset, float* dx_sum) {
    std::vector<float> totals(size_t(3 * D));
    summed(T, 3 * D, totals.data(), [&](long from, long to, float* sums) {
        for (long t = from; t < to; t++) {
            const long at = t * D;
            RowMasks masks(dropout, t);
            Vec sum_w = zero(), sum_wn = zero();
            for (long i = 0; i < D; i += LANES) {
                Mask m = first(D - i);
                Vec g = load(grad + at + i, m), n = load(normal + at + i, m), w = g * load(gain + i, m);
                add_to(sums + i, g * n, m);
                add_to(sums + D + i, g, m);
                sum_w = sum_w + w;
                sum_wn = fma(w, n, sum_wn);
            }
            Vec mean = all(sum(sum_w) / float(D)), along = all(sum(sum_wn) / float(D));
            for (long i = 0; i < D; i += LANES) {
                Mask m = first(D - i);
                Vec w = load(grad + at + i, m) * load(gain + i, m);
                Vec d = (w - mean - load(normal + at + i, m) * along) * all(inverse[t]);
                store(dsum + at + i, d, m);
                if (!dx) continue;
                if (dropout.on()) d = keep(masks.at(i), d) * all(dropout.scale());
                store(dx + at + i, d, m);
                add_to(sums + 2 * D + i, d, m);
            }
        }
    });
    std::copy(totals.begin(), totals.begin() + D, dgain);
    std::copy(totals.begin() + D, totals.begin() + 2 * D, doffset);
    if (dx_sum) std::copy(totals.begin() + 2 * D, totals.end(), dx_sum);
}

template <class E>
void restore(const E* normal, const float* gain, const float* offset, long T, long D, E* y) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++)
        for (long i = 0; i < D; i += LANES) {
            Mask m = first(D - i);
            store(y + t * D + i, fma(load(normal + t * D + i, m), load(gain + i, m), load(offset + i, m)), m);
        }
}

void drop(const float* x, const Dropout& dropout, long T, long D, float* y) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++) {
        RowMasks masks(dropout, t);
        for (long i = 0; i < D; i += LANES) {
            Mask m = first(D - i);
            store(y + t * D + i, keep(masks.at(i), load(x + t * D + i, m)) * all(dropout.scale()), m);
        }
    }
}

#define INSTANTIATE(E)                                                                                                             \
    template void convert<E>(const float*, E*, long, long, long);                                                                  \
    template void clear_rows<E>(E*, long, long, long);                                                                             \
    template void column_sum<E>(const E*, long, long, long, float*);                                                               \
    template void activate<E>(Activation, const E*, E*, long);                                                                     \
    template void activate_backward<E>(Activation, const E*, E*, long, long, float*);                                              \
    template void add_norm<E>(const float*, const E*, const float*, const float*, float, const Dropout&, long, long, float*, E*,   \
                              E*, float*);                                                                                         \
    template void add_norm_backward<E>(const float*, const E*, const float*, const float*, const Dropout&, long, long, float*, E*, \
                                       float*, float*, float*);                                                                    \
    template void restore<E>(const E*, const float*, const float*, long, long, E*);
INSTANTIATE(float)
#ifdef __AVX512BF16__
INSTANTIATE(bf16)
#endif

}  // namespace ernie
