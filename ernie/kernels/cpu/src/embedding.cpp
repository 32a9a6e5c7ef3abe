// Sums of embedding rows, and their gradients.
//
// For the gradients, each thread owns some columns and processes all tokens in order: rows shared by many tokens are
// summed without locks and always in the same order.
#include "embedding.h"

#include "threads.h"

namespace ernie {

void gather_sum(int tables, const float* const* table, const int64_t* const* ids, long T, long D, float* z) {
#pragma omp parallel for schedule(static)
    for (long t = 0; t < T; t++)
        for (long i = 0; i < D; i += LANES) {
            Mask m = first(D - i);
            Vec sum = zero();
            for (int k = 0; k < tables; k++) sum = sum + load(table[k] + ids[k][t] * D + i, m);
            store(z + t * D + i, sum, m);
        }
}

void scatter_add(int tables, float* const* table, const int64_t* const* ids, long T, long D, const float* grad) {
    constexpr long COLUMNS = 64;
#pragma omp parallel for schedule(static)
    for (long from = 0; from < D; from += COLUMNS)
        for (long t = 0; t < T; t++)
            for (long i = from; i < std::min(D, from + COLUMNS); i += LANES) {
                Mask m = first(D - i);
                Vec g = load(grad + t * D + i, m);
                for (int k = 0; k < tables; k++) {
                    float* row = table[k] + ids[k][t] * D + i;
                    store(row, load(row, m) + g, m);
                }
            }
}

}  // namespace ernie
