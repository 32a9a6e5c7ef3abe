#include "trial.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "packed.h"
#include "product.h"
#include "threads.h"

namespace ernie {
namespace {

constexpr long M = 192, N = 160, K = 64;

// Reproducible values from -1 to 1.
std::vector<float> values(long count, uint32_t seed) {
    std::vector<float> found(static_cast<size_t>(count));
    for (float& value : found) value = float(int32_t(seed = seed * 1664525u + 1013904223u)) / 2147483648.f;
    return found;
}

// Throws unless the norm of the error, relative to that of the result, is at most `tolerance`.
void compare(const char* what, const std::vector<float>& found, const std::vector<double>& wanted, double tolerance) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < wanted.size(); i++) error += (found[i] - wanted[i]) * (found[i] - wanted[i]), norm += wanted[i] * wanted[i];
    const double relative = std::sqrt(error / norm);
    if (!(relative <= tolerance))
        throw std::runtime_error(std::string("a product of ") + what + " is wrong by " + std::to_string(std::lrint(100 * std::min(relative, 1e6))) + " %");
}

struct Trial {
    const std::vector<float> x = values(M * K, 1), weight = values(K * N, 2), bias = values(N, 3);
    std::vector<double> wanted;

    Trial() : wanted(size_t(M * N)) {
        for (long m = 0; m < M; m++)
            for (long n = 0; n < N; n++) {
                double sum = bias[size_t(n)];
                for (long k = 0; k < K; k++) sum += double(x[size_t(m * K + k)]) * weight[size_t(k * N + n)];
                wanted[size_t(m * N + n)] = sum;
            }
    }

    template <class E>
    std::vector<E> as(const std::vector<float>& from) const {
        std::vector<E> found(from.size());
        for (size_t i = 0; i < from.size(); i += LANES) {
            const Mask m = first(long(from.size() - i));
            store(found.data() + i, load(from.data() + i, m), m);
        }
        return found;
    }

    template <class E>
    void plain(const char* what, double tolerance) const {
        const std::vector<E> A = as<E>(x), B = as<E>(weight);
        std::vector<float> found(wanted.size());
        product(type_of<E>, Type::f32, M, N, K, {A.data(), K}, {B.data(), N}, bias.data(), found.data(), N, false);
        compare(what, found, wanted, tolerance);
    }

    template <class E>
    void packed(Kind kind, const char* what, double tolerance) const {
        Arena arena;
        const auto weights = pack_weight(kind, {K, {weight.data()}, {N}}, arena);
        const long rows = weights->rows(M);
        std::vector<E> A = as<E>(x), found(size_t(rows * N));
        A.resize(size_t(rows * K));
        weights->multiply(M, A.data(), bias.data(), Activation::none, found.data());
        found.resize(wanted.size());
        std::vector<float> converted(found.size());
        for (size_t i = 0; i < found.size(); i += LANES) {
            const Mask m = first(long(found.size() - i));
            store(converted.data() + i, load(found.data() + i, m), m);
        }
        compare(what, converted, wanted, tolerance);
    }
};

}  // namespace

void try_products() {
    const Trial trial;
    trial.plain<float>("fp32", 1e-5);
    trial.packed<float>(Kind::f32, "packed fp32", 1e-5);
    trial.packed<Low>(Kind::int8, "int8", 0.05);
#ifdef __AVX512BF16__
    trial.plain<bf16>("bf16", 0.02);
    trial.packed<bf16>(Kind::bf16, "packed bf16", 0.02);
#endif
}

}  // namespace ernie
