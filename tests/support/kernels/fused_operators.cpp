// Kernels for a CPU of the operators that Paddle computes on a GPU only, in plain loops with sums in double.
//
// They are registered with Paddle, which calls them as it would call those of a GPU: shapes, types and which gradients
// are wanted are its own.  A kernel demands what the GPU's demands.  Matrix products and GELU are here because Paddle
// has none in bfloat16 for a CPU.  The compiler compares the parameters with those of the wheel's headers: of a kernel
// of the same name, which would be another overload, or of the function that infers the shapes.
//
// Letters: M rows, K and N widths of a product; T queries, S keys, H heads, K width of a head.
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/core/custom_kernel.h"
#include "paddle/phi/core/kernel_registry.h"
#include "paddle/phi/infermeta/fusion.h"
#include "paddle/phi/infermeta/multiary.h"
#include "paddle/phi/kernels/flash_attn_grad_kernel.h"
#include "paddle/phi/kernels/flash_attn_kernel.h"
#include "paddle/phi/kernels/fusion/gpu/fused_bias_dropout_residual_layer_norm_grad_kernel.h"
#include "paddle/phi/kernels/fusion/gpu/fused_bias_dropout_residual_layer_norm_kernel.h"
#include "paddle/phi/kernels/gelu_grad_kernel.h"
#include "paddle/phi/kernels/gelu_kernel.h"
#include "paddle/phi/kernels/matmul_kernel.h"

using phi::DenseTensor;
using Optional = paddle::optional<DenseTensor>;
using Doubles = std::vector<double>;

namespace {

std::map<std::string, int> calls;
std::map<std::string, std::string> wanted;  // of the last call: 1 for a result that Paddle wants, else 0
phi::KernelNameMap registered;

void note(const std::string& kernel, std::initializer_list<const DenseTensor*> results) {
    calls[kernel]++;
    wanted[kernel].clear();
    for (const DenseTensor* result : results) wanted[kernel] += result ? '1' : '0';
}

template <typename T>
Doubles values(const DenseTensor& tensor) {
    const T* data = tensor.data<T>();
    return Doubles(data, data + tensor.numel());
}

// Writes a result, if it is wanted.
template <typename T, typename Context>
void give(const Context& device, const Doubles& result, DenseTensor* tensor) {
    if (!tensor) return;
    PADDLE_ENFORCE_EQ(tensor->numel(), int64_t(result.size()), common::errors::InvalidArgument("size of a result"));
    T* data = device.template Alloc<T>(tensor);
    for (size_t i = 0; i < result.size(); i++) data[i] = static_cast<T>(result[i]);
}

// The product of a (M, K) and b (K, N), each of which may be given transposed.
Doubles times(const Doubles& a, const Doubles& b, int64_t M, int64_t K, int64_t N, bool of_a = false, bool of_b = false) {
    Doubles found(M * N);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++)
            for (int64_t n = 0; n < N; n++)
                found[m * N + n] += a[of_a ? k * M + m : m * K + k] * b[of_b ? n * K + k : k * N + n];
    return found;
}

Doubles sum_of_rows(const Doubles& x, int64_t M, int64_t N) {
    Doubles sums(N);
    for (int64_t i = 0; i < M * N; i++) sums[i % N] += x[i];
    return sums;
}

// 0 for a dropped element, else the factor that keeps the mean.
double kept(uint64_t seed, uint64_t element, double dropout) {
    if (dropout == 0) return 1;
    std::mt19937_64 random(seed ^ (element * 0x9e3779b97f4a7c15u));
    return std::uniform_real_distribution<>()(random) < dropout ? 0 : 1 / (1 - dropout);
}

struct Attention {
    Doubles q, k, v;  // (T, H, K), (S, H, K), (S, H, K)
    int64_t T, S, H, K;
    double scale, dropout;
    uint64_t seed;
    std::function<bool(int64_t, int64_t)> sees;

    // The weights of the keys for a query and a head.
    Doubles weights(int64_t t, int64_t h) const {
        Doubles found(S);
        double largest = -INFINITY, total = 0;
        for (int64_t s = 0; s < S; s++) {
            for (int64_t i = 0; i < K; i++) found[s] += scale * q[(t * H + h) * K + i] * k[(s * H + h) * K + i];
            if (sees(t, s)) largest = std::max(largest, found[s]);
        }
        for (int64_t s = 0; s < S; s++) total += found[s] = sees(t, s) ? std::exp(found[s] - largest) : 0;
        for (double& weight : found) weight = total > 0 ? weight / total : 0;
        return found;
    }

    double factor(int64_t t, int64_t h, int64_t s) const { return kept(seed, (h * T + t) * S + s, dropout); }

    Doubles forward() const {
        Doubles out(T * H * K);
        for (int64_t t = 0; t < T; t++)
            for (int64_t h = 0; h < H; h++) {
                const Doubles w = weights(t, h);
                for (int64_t s = 0; s < S; s++)
                    for (int64_t i = 0; i < K; i++)
                        out[(t * H + h) * K + i] += w[s] * factor(t, h, s) * v[(s * H + h) * K + i];
            }
        return out;
    }

    void backward(const Doubles& dout, Doubles& dq, Doubles& dk, Doubles& dv) const {
        dq.resize(T * H * K), dk.resize(S * H * K), dv.resize(S * H * K);
        for (int64_t t = 0; t < T; t++)
            for (int64_t h = 0; h < H; h++) {
                const Doubles w = weights(t, h);
                Doubles dw(S);
                double mean = 0;
                for (int64_t s = 0; s < S; s++) {
                    for (int64_t i = 0; i < K; i++) {
                        const double grad = dout[(t * H + h) * K + i] * factor(t, h, s);
                        dw[s] += grad * v[(s * H + h) * K + i];
                        dv[(s * H + h) * K + i] += grad * w[s];
                    }
                    mean += w[s] * dw[s];
                }
                for (int64_t s = 0; s < S; s++)
                    for (int64_t i = 0; i < K; i++) {
                        const double grad = scale * w[s] * (dw[s] - mean);
                        dq[(t * H + h) * K + i] += grad * k[(s * H + h) * K + i];
                        dk[(s * H + h) * K + i] += grad * q[(t * H + h) * K + i];
                    }
            }
    }
};

// Of tensors (..., H, K), with everything before the heads as rows.
template <typename T>
Attention attention_of(const DenseTensor& q, const DenseTensor& k, const DenseTensor& v, double scale, float dropout) {
    const int64_t K = q.dims()[q.dims().size() - 1], H = q.dims()[q.dims().size() - 2];
    PADDLE_ENFORCE_EQ(K % 8, 0, common::errors::InvalidArgument("the width of a head is a multiple of 8"));
    return {values<T>(q), values<T>(k), values<T>(v), q.numel() / H / K, k.numel() / H / K, H, K, scale, dropout, 0, {}};
}

// Whether a query sees a key of packed sequences that begin at these offsets; the triangle ends at the last of both.
std::function<bool(int64_t, int64_t)> in_sequences(const DenseTensor& queries, const DenseTensor& keys, bool causal) {
    const std::vector<int> first(queries.data<int>(), queries.data<int>() + queries.numel());
    const std::vector<int> other(keys.data<int>(), keys.data<int>() + keys.numel());
    return [=](int64_t t, int64_t s) {
        size_t n = 0;
        while (t >= first[n + 1]) n++;
        return other[n] <= s && s < other[n + 1] && (!causal || first[n + 1] - t <= other[n + 1] - s);
    };
}

// As FlashMask reads its rows (1, 1, S, 2): where a mask begins below the diagonal, and where one above it ends.
std::function<bool(int64_t, int64_t)> outside_of(const DenseTensor& rows) {
    PADDLE_ENFORCE_EQ(rows.dims(), common::make_ddim({1, 1, rows.numel() / 2, 2}), common::errors::InvalidArgument("rows"));
    const std::vector<int> row(rows.data<int>(), rows.data<int>() + rows.numel());
    return [=](int64_t t, int64_t s) { return t >= s ? t < row[2 * s] : t >= row[2 * s + 1]; };
}

// Computes the output and what Paddle keeps for the gradient.
template <typename T, typename Context>
void attend(const Context& device, Attention& attention, DenseTensor* out, DenseTensor* log_sums, DenseTensor* seed) {
    int64_t* state = device.template Alloc<int64_t>(seed);
    state[0] = int64_t(attention.seed = attention.dropout > 0 ? device.GetGenerator()->Random64() : 0), state[1] = 0;
    give<T>(device, attention.forward(), out);
    float* sums = device.template Alloc<float>(log_sums);
    std::fill(sums, sums + log_sums->numel(), 0.0f);
}

template <typename T, typename Context>
void attend_backward(const Context& device, Attention& attention, const DenseTensor& seed, const DenseTensor& dout,
                     DenseTensor* dq, DenseTensor* dk, DenseTensor* dv) {
    attention.seed = seed.data<int64_t>()[0];
    Doubles q, k, v;
    attention.backward(values<T>(dout), q, k, v);
    give<T>(device, q, dq), give<T>(device, k, dk), give<T>(device, v, dv);
}

}  // namespace

namespace phi {

template <typename T, typename Context>
void FlashAttnUnpaddedKernel(const Context& device, const DenseTensor& q, const DenseTensor& k, const DenseTensor& v,
                             const DenseTensor& queries, const DenseTensor& keys, const Optional&, const Optional&,
                             const Scalar&, const Scalar&, float scale, float dropout, bool causal, bool, bool is_test,
                             const std::string&, DenseTensor* out, DenseTensor*, DenseTensor* log_sums, DenseTensor* seed) {
    note("flash_attn_unpadded", {out});
    Attention attention = attention_of<T>(q, k, v, scale, is_test ? 0 : dropout);
    attention.sees = in_sequences(queries, keys, causal);
    attend<T>(device, attention, out, log_sums, seed);
}

template <typename T, typename Context>
void FlashAttnUnpaddedGradKernel(const Context& device, const DenseTensor& q, const DenseTensor& k, const DenseTensor& v,
                                 const DenseTensor& queries, const DenseTensor& keys, const DenseTensor&, const DenseTensor&,
                                 const DenseTensor& seed, const Optional&, const DenseTensor& dout, const Scalar&,
                                 const Scalar&, float scale, float dropout, bool causal, DenseTensor* dq, DenseTensor* dk,
                                 DenseTensor* dv) {
    note("flash_attn_unpadded_grad", {dq, dk, dv});
    Attention attention = attention_of<T>(q, k, v, scale, dropout);
    attention.sees = in_sequences(queries, keys, causal);
    attend_backward<T>(device, attention, seed, dout, dq, dk, dv);
}

template <typename T, typename Context>
void FlashMaskKernel(const Context& device, const DenseTensor& q, const DenseTensor& k, const DenseTensor& v,
                     const DenseTensor& rows, const Optional&, float dropout, bool, bool, bool is_test, const std::string&,
                     DenseTensor* out, DenseTensor*, DenseTensor* log_sums, DenseTensor* seed) {
    note("flashmask_attention", {out});
    Attention attention = attention_of<T>(q, k, v, 1 / std::sqrt(double(q.dims()[3])), is_test ? 0 : dropout);
    attention.sees = outside_of(rows);
    attend<T>(device, attention, out, log_sums, seed);
}

// The wheel has no header of this one; its parameters are those of the function above.
template <typename T, typename Context>
void FlashMaskGradKernel(const Context& device, const DenseTensor& q, const DenseTensor& k, const DenseTensor& v,
                         const DenseTensor& rows, const DenseTensor&, const DenseTensor&, const DenseTensor& seed,
                         const DenseTensor& dout, float dropout, bool, DenseTensor* dq, DenseTensor* dk, DenseTensor* dv) {
    note("flashmask_attention_grad", {dq, dk, dv});
    Attention attention = attention_of<T>(q, k, v, 1 / std::sqrt(double(q.dims()[3])), dropout);
    attention.sees = outside_of(rows);
    attend_backward<T>(device, attention, seed, dout, dq, dk, dv);
}

template <typename T, typename Context>
void MatmulKernel(const Context& device, const DenseTensor& x, const DenseTensor& y, bool of_x, bool of_y, DenseTensor* out) {
    const int64_t M = x.dims()[of_x], K = x.dims()[!of_x], N = y.dims()[!of_y];
    give<T>(device, times(values<T>(x), values<T>(y), M, K, N, of_x, of_y), out);
}

template <typename T, typename Context>
void GeluKernel(const Context& device, const DenseTensor& x, bool, DenseTensor* out) {
    Doubles y = values<T>(x);
    for (double& value : y) value *= 0.5 * std::erfc(-value / std::sqrt(2.0));
    give<T>(device, y, out);
}

template <typename T, typename Context>
void GeluGradKernel(const Context& device, const DenseTensor& x, const DenseTensor& dout, bool, DenseTensor* dx) {
    Doubles grad = values<T>(dout);
    const Doubles in = values<T>(x);
    for (size_t i = 0; i < grad.size(); i++) {
        const double density = std::exp(-in[i] * in[i] / 2) / std::sqrt(2 * M_PI);
        grad[i] *= 0.5 * std::erfc(-in[i] / std::sqrt(2.0)) + in[i] * density;
    }
    give<T>(device, grad, dx);
}

// The wheel has no headers of the three that follow.
template <typename T, typename Context>
void FusedGemmEpilogueKernel(const Context& device, const DenseTensor& x, const DenseTensor& y, const DenseTensor& bias,
                             bool of_x, bool of_y, const std::string& activation, DenseTensor* out, DenseTensor*) {
    PADDLE_ENFORCE_EQ(activation, "none", common::errors::InvalidArgument("an activation is not fused"));
    note("fused_gemm_epilogue", {out});
    const int64_t M = x.dims()[of_x], K = x.dims()[!of_x], N = y.dims()[!of_y];
    Doubles found = times(values<T>(x), values<T>(y), M, K, N, of_x, of_y), added = values<T>(bias);
    for (int64_t i = 0; i < M * N; i++) found[i] += added[i % N];
    give<T>(device, found, out);
}

// As in `funcs/fused_gemm_epilogue.h`, the gradient of the bias comes out of the product for that of the weight.
template <typename T, typename Context>
void FusedGemmEpilogueGradKernel(const Context& device, const DenseTensor& x, const DenseTensor& y, const Optional&,
                                 const DenseTensor& dout, bool, bool, const std::string&, DenseTensor* dx, DenseTensor* dy,
                                 DenseTensor* dbias) {
    note("fused_gemm_epilogue_grad", {dx, dy, dbias});
    const int64_t M = x.dims()[0], K = x.dims()[1], N = y.dims()[1];
    const Doubles grad = values<T>(dout);
    if (dx) give<T>(device, times(grad, values<T>(y), M, N, K, false, true), dx);
    if (dy) {
        give<T>(device, times(values<T>(x), grad, K, M, N, true), dy);
        give<T>(device, sum_of_rows(grad, M, N), dbias);
    }
}

// The gradient of the weight is added to the one that is given, in its own memory.
template <typename T, typename Context>
void FusedLinearParamGradAdd(const Context& device, const DenseTensor& x, const DenseTensor& dout, const Optional& dweight,
                             const Optional& dbias, bool multi_precision, bool has_bias, DenseTensor* dweight_out,
                             DenseTensor* dbias_out) {
    PADDLE_ENFORCE_EQ(multi_precision, true, common::errors::InvalidArgument("sums are in float32"));
    note("fused_linear_param_grad_add", {dweight_out, has_bias ? dbias_out : nullptr});
    const int64_t M = x.dims()[0], K = x.dims()[1], N = dout.dims()[1];
    const Doubles grad = values<T>(dout);
    Doubles sum = times(values<T>(x), grad, K, M, N, true), row = sum_of_rows(grad, M, N);
    if (dweight) {
        const Doubles before = values<float>(*dweight);
        for (size_t i = 0; i < sum.size(); i++) sum[i] += before[i];
        *dweight_out = *dweight;
    }
    give<float>(device, sum, dweight_out);
    if (!has_bias) return;
    for (int64_t i = 0; dbias && i < N; i++) row[i] += dbias->data<float>()[i];
    give<float>(device, row, dbias_out);
}

namespace fusion {

template <typename T, typename Context>
void FusedBiasDropoutResidualLnKernel(const Context& device, const DenseTensor& x, const DenseTensor& residual,
                                      const Optional& bias, const Optional& gain, const Optional& offset, const float dropout,
                                      const bool is_test, const bool, const int, const std::string& mode, const float epsilon,
                                      DenseTensor* y, DenseTensor* sum, DenseTensor* mask, DenseTensor* mean,
                                      DenseTensor* variance) {
    PADDLE_ENFORCE_EQ(!bias && gain && offset && !is_test && mode == "upscale_in_train", true,
                      common::errors::InvalidArgument("another norm than that of the library"));
    note("fused_bias_dropout_residual_layer_norm", {y});
    const int64_t D = x.dims()[x.dims().size() - 1], rows = x.numel() / D;
    const uint64_t seed = dropout > 0 ? device.GetGenerator()->Random64() : 0;
    uint8_t* kept_TD = device.template Alloc<uint8_t>(mask);
    Doubles total = values<T>(residual), in = values<T>(x), g = values<T>(*gain), o = values<T>(*offset), out(rows * D);
    Doubles means(rows), variances(rows);
    for (int64_t i = 0; i < rows * D; i++) {
        const double factor = kept(seed, i, dropout);
        kept_TD[i] = factor > 0;
        means[i / D] += (total[i] += factor * in[i]) / D;
    }
    for (int64_t i = 0; i < rows * D; i++) variances[i / D] += std::pow(total[i] - means[i / D], 2) / D;
    for (int64_t i = 0; i < rows * D; i++)
        out[i] = (total[i] - means[i / D]) / std::sqrt(variances[i / D] + epsilon) * g[i % D] + o[i % D];
    give<T>(device, out, y), give<T>(device, total, sum), give<T>(device, means, mean), give<T>(device, variances, variance);
}

// As on a GPU, the gradients of both inputs are written, wanted or not.
template <typename T, typename Context>
void FusedBiasDropoutResidualLnGradKernel(const Context& device, const DenseTensor& x, const DenseTensor&, const Optional&,
                                          const Optional& gain, const Optional&, const DenseTensor& mean,
                                          const DenseTensor& variance, const DenseTensor& sum, const DenseTensor& mask,
                                          const DenseTensor& dy, const float dropout, const bool, const bool, const int,
                                          const std::string&, const float epsilon, DenseTensor* dx, DenseTensor* dresidual,
                                          DenseTensor* dbias, DenseTensor* dgain, DenseTensor* doffset) {
    note("fused_bias_dropout_residual_layer_norm_grad", {dx, dresidual, dbias, dgain, doffset});
    PADDLE_ENFORCE_EQ(dx && dresidual, true, common::errors::InvalidArgument("no memory for the gradient of an input"));
    const int64_t D = x.dims()[x.dims().size() - 1], rows = x.numel() / D;
    const Doubles total = values<T>(sum), g = values<T>(*gain), up = values<T>(dy);
    const Doubles means = values<T>(mean), variances = values<T>(variance);
    Doubles normal(rows * D), one(rows), two(rows), in(rows * D), residual(rows * D), gains(D), offsets(D);
    for (int64_t i = 0; i < rows * D; i++) {
        normal[i] = (total[i] - means[i / D]) / std::sqrt(variances[i / D] + epsilon);
        one[i / D] += up[i] * g[i % D] / D, two[i / D] += up[i] * g[i % D] * normal[i] / D;
        gains[i % D] += up[i] * normal[i], offsets[i % D] += up[i];
    }
    for (int64_t i = 0; i < rows * D; i++) {
        residual[i] = (up[i] * g[i % D] - one[i / D] - normal[i] * two[i / D]) / std::sqrt(variances[i / D] + epsilon);
        in[i] = mask.data<uint8_t>()[i] ? residual[i] / (1 - dropout) : 0;
    }
    give<T>(device, in, dx), give<T>(device, residual, dresidual);
    give<T>(device, gains, dgain), give<T>(device, offsets, doffset);
}

}  // namespace fusion
}  // namespace phi

using phi::dtype::bfloat16;

// The type of the function that infers the shapes of a kernel's results.
template <typename T> struct Meta { using type = T; };
template <> struct Meta<const DenseTensor&> { using type = const phi::MetaTensor&; };
template <> struct Meta<const Optional&> { using type = const phi::MetaTensor&; };
template <> struct Meta<DenseTensor*> { using type = phi::MetaTensor*; };
template <typename... Last, typename Context, typename... Parameters>
auto of_shapes(void (*)(Context, Parameters...)) -> void (*)(typename Meta<Parameters>::type..., Last...);
template <typename A, typename B> constexpr bool same = std::is_same_v<A, B>;

using Context = phi::CPUContext;
static_assert(same<decltype(of_shapes<phi::MetaConfig>(phi::FusedGemmEpilogueKernel<float, Context>)),
                   decltype(&phi::FusedGemmEpilogueInferMeta)>);
static_assert(same<decltype(of_shapes(phi::FusedGemmEpilogueGradKernel<float, Context>)),
                   decltype(&phi::FusedGemmEpilogueGradInferMeta)>);
static_assert(same<decltype(of_shapes(phi::FusedLinearParamGradAdd<bfloat16, Context>)),
                   decltype(&phi::FusedLinearParamGradAddInferMeta)>);

PD_REGISTER_BUILTIN_KERNEL(flash_attn_unpadded, CPU, ALL_LAYOUT, phi::FlashAttnUnpaddedKernel, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(flash_attn_unpadded_grad, CPU, ALL_LAYOUT, phi::FlashAttnUnpaddedGradKernel, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(flashmask_attention, CPU, ALL_LAYOUT, phi::FlashMaskKernel, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(flashmask_attention_grad, CPU, ALL_LAYOUT, phi::FlashMaskGradKernel, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(fused_gemm_epilogue, CPU, ALL_LAYOUT, phi::FusedGemmEpilogueKernel, float, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(fused_gemm_epilogue_grad, CPU, ALL_LAYOUT, phi::FusedGemmEpilogueGradKernel, float, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(fused_linear_param_grad_add, CPU, ALL_LAYOUT, phi::FusedLinearParamGradAdd, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(fused_bias_dropout_residual_layer_norm, CPU, ALL_LAYOUT,
                           phi::fusion::FusedBiasDropoutResidualLnKernel, float) {}
PD_REGISTER_BUILTIN_KERNEL(fused_bias_dropout_residual_layer_norm_grad, CPU, ALL_LAYOUT,
                           phi::fusion::FusedBiasDropoutResidualLnGradKernel, float) {}
PD_REGISTER_BUILTIN_KERNEL(matmul, CPU, ALL_LAYOUT, phi::MatmulKernel, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(gelu, CPU, ALL_LAYOUT, phi::GeluKernel, bfloat16) {}
PD_REGISTER_BUILTIN_KERNEL(gelu_grad, CPU, ALL_LAYOUT, phi::GeluGradKernel, bfloat16) {}

extern "C" {

void register_kernels() {
    registered = phi::CustomKernelMap::Instance().Kernels();
    phi::CustomKernelMap::Instance().RegisterCustomKernels();
}

void remove_kernels() {
    for (const auto& [name, kernels] : registered)
        for (const auto& [key, kernel] : kernels) phi::KernelFactory::Instance().kernels()[name].erase(key);
}

int calls_of(const char* kernel) { return calls[kernel]; }
const char* wanted_of(const char* kernel) { return wanted[kernel].c_str(); }
}
