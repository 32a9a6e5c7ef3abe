// Products of float matrices, of sizes around those of the blocks, each factor as it is or transposed.
#include <algorithm>

#include "library.h"
#include "memory.h"

namespace {

// Rows of C lie `gap` elements further apart than they are long, and what is between them stays.
void test_product(const Library& library, long M, long N, long K, bool turned_a, bool turned_b, bool biased, bool add, bool alone) {
    begin("product, %ld x %ld x %ld%s%s%s%s%s", M, K, N, turned_a ? ", A transposed" : "", turned_b ? ", B transposed" : "", biased ? ", bias" : "",
          add ? ", added" : "", alone ? ", rows alone" : "");
    constexpr long GAP = 3;
    const long lda = turned_a ? M : K, ldb = turned_b ? K : N, ldc = N + GAP;
    Array<float> A(M * K), B(K * N), bias(N), C(M * ldc);
    const Doubles a = fill(A), b = fill(B), begins = fill(bias), before = fill(C);
    Doubles wanted = before, sizes = before;
    for (long m = 0; m < M; m++)
        for (long n = 0; n < N; n++) {
            double sum = add ? before[size_t(m * ldc + n)] : biased ? begins[size_t(n)] : 0, size = std::abs(sum);
            for (long k = 0; k < K; k++) {
                const double one = a[size_t(turned_a ? k * lda + m : m * lda + k)] * b[size_t(turned_b ? n * ldb + k : k * ldb + n)];
                sum += one, size += std::abs(one);
            }
            wanted[size_t(m * ldc + n)] = sum, sizes[size_t(m * ldc + n)] = size;
        }
    succeeds(library.call("product", 0, M, N, K, (const void*)A.data(), lda, int(turned_a), (const void*)B.data(), ldb, int(turned_b),
                          (const float*)(biased ? bias.data() : nullptr), (void*)C.data(), 0, ldc, int(add), int(alone)));
    expect("C", C.data(), wanted, 1e-6, sizes);
    for (long m = 0; m < M; m++)
        for (long n = N; n < ldc; n++)
            if (C[m * ldc + n] != float(before[size_t(m * ldc + n)])) return fail("a write beyond row %ld", m);
}

}  // namespace

void test_product(const Library& library, bool needs_onednn) {
    constexpr long SIZES[][3] = {{1, 1, 1}, {7, 5, 3}, {6, 16, 8}, {13, 33, 9}, {197, 50, 391}, {385, 17, 31}, {32, 129, 800}};
    for (const auto& size : SIZES)
        for (int which = 0; which < 4; which++)
            for (int begun = 0; begun < 3; begun++) {
                const bool turned_a = which & 1, turned_b = which & 2;
                if (!needs_onednn) test_product(library, size[0], size[1], size[2], turned_a, turned_b, begun == 1, begun == 2, false);
                if (!turned_a) test_product(library, size[0], size[1], size[2], false, turned_b, begun == 1, begun == 2, true);
            }
}
