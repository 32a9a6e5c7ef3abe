// Embedding tables: embeddings, and the cross entropy over a vocabulary.
#include <algorithm>
#include <memory>

#include "library.h"
#include "memory.h"

namespace {

void test_embedding(const Library& library, int tables, long T, long D) {
    begin("embedding, %d tables, %ld x %ld", tables, T, D);
    const long rows[] = {5, 1, 40, 2};
    std::vector<std::unique_ptr<Array<float>>> table, gradient;
    std::vector<std::unique_ptr<Array<int64_t>>> ids;
    std::vector<float*> addresses, gradients;
    std::vector<int64_t*> id_addresses;
    Array<float> z(T * D), grad(T * D);
    const Doubles up = fill(grad);
    Doubles w_z(T * D);
    std::vector<Doubles> w_gradient;
    for (int n = 0; n < tables; n++) {
        table.push_back(std::make_unique<Array<float>>(rows[n] * D));
        gradient.push_back(std::make_unique<Array<float>>(rows[n] * D));
        ids.push_back(std::make_unique<Array<int64_t>>(T));
        const Doubles values = fill(*table.back());
        w_gradient.push_back(fill(*gradient.back()));  // the kernel adds to it
        for (long t = 0; t < T; t++) {
            const long id = (*ids.back())[t] = between(0, rows[n] - 1);
            for (long d = 0; d < D; d++) {
                w_z[t * D + d] += values[id * D + d];
                w_gradient.back()[id * D + d] += up[t * D + d];
            }
        }
        addresses.push_back(*table.back()), gradients.push_back(*gradient.back()), id_addresses.push_back(*ids.back());
    }
    succeeds(library.call("gather_sum", tables, addresses.data(), id_addresses.data(), T, D, z.data()));
    expect("sum of rows", z.data(), w_z, 1e-6);
    succeeds(library.call("scatter_add", tables, gradients.data(), id_addresses.data(), T, D, (const float*)grad));
    for (int n = 0; n < tables; n++) expect("gradient of a table", gradient[n]->data(), w_gradient[n], 1e-5);
}

template <class E>
void test_cross_entropy(const Library& library, long P, long V, double scale) {
    begin("cross entropy, %ld x %ld, logits of %g", P, V, scale);
    Array<float> logits(P * V), loss(P);
    Array<int64_t> labels(P), drawn(P);
    Array<double> draws(P);
    Array<E> grad(P * V);
    const Doubles x = fill(logits, scale);
    Doubles w_loss(P), w_grad(P * V);
    for (long p = 0; p < P; p++) {
        labels[p] = p == 0 ? V - 1 : between(0, V - 1);
        double highest = -INFINITY, divisor = 0;
        for (long j = 0; j < V; j++) highest = std::max(highest, x[p * V + j]);
        for (long j = 0; j < V; j++) divisor += std::exp(x[p * V + j] - highest);
        w_loss[p] = highest + std::log(divisor) - x[p * V + labels[p]];
        for (long j = 0; j < V; j++) w_grad[p * V + j] = std::exp(x[p * V + j] - highest) / divisor - double(j == labels[p]);
        draws[p] = p < 2 ? p * (1 - 0x1p-53) : between(0, 999) / 1000.0;
    }
    succeeds(library.call("cross_entropy", low<E>, (const float*)logits, (const int64_t*)labels, (const double*)nullptr, P, V,
                          loss.data(), (void*)grad.data(), (int64_t*)nullptr));
    expect("loss", loss.data(), w_loss, 1e-5);
    expect("gradient", grad.data(), w_grad, low<E> ? 0.005 : 1e-5);
    succeeds(library.call("cross_entropy", low<E>, (const float*)logits, (const int64_t*)labels, (const double*)draws, P, V,
                          loss.data(), (void*)grad.data(), drawn.data()));
    Array<float> outside(P);  // how far a number is from the share of the class that it draws
    for (long p = 0; p < P; p++) {
        double before = 0;
        for (long j = 0; j < drawn[p]; j++) before += w_grad[p * V + j] + double(j == labels[p]);
        const double share = w_grad[p * V + drawn[p]] + double(drawn[p] == labels[p]);
        outside[p] = float(std::max({0.0, before - draws[p], draws[p] - before - share}));
    }
    expect("draws", outside.data(), Doubles(P), 1e-5);
    expect("loss", loss.data(), w_loss, 1e-5);
    expect("gradient", grad.data(), w_grad, low<E> ? 0.005 : 1e-5);
    for (double& value : w_grad) value *= 0.75;
    succeeds(library.call("scale", low<E>, (void*)grad.data(), P * V, 0.75f));
    expect("scaled gradient", grad.data(), w_grad, low<E> ? 0.01 : 1e-5);
}

}  // namespace

template <class E>
void test_tables(const Library& library) {
    for (long V : {1, 2, 7, 8, 16, 17, 33, 257, 1001})
        for (double scale : {1.0, 40.0}) test_cross_entropy<E>(library, between(1, 9), V, scale);
    if (low<E>) return;  // tables are float in every precision
    for (long D : {1, 7, 16, 17, 64, 65, 130})
        for (int tables : {1, 2, 4}) test_embedding(library, tables, between(1, 200), D);
}

template void test_tables<float>(const Library&);
template void test_tables<bf16>(const Library&);
