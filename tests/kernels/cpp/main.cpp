// kernels_test LIBRARY THREADS: runs every kernel that needs no oneDNN on odd sizes, and prints a hash of all results.
// Exit status: 0 if all are right, 1 if a result differs, 3 if a kernel accesses memory out of bounds.
#include <csignal>
#include <cstring>

#include <unistd.h>

#include "judge.h"
#include "library.h"

namespace {

void out_of_bounds(int) {
    const char text[] = ": the kernel left an array\n";
    (void)!write(2, current_case, std::strlen(current_case));
    (void)!write(2, text, sizeof text - 1);
    _exit(3);
}

template <class E>
void test_all(const Library& library, const char* path) {
    test_attention<E>(library);
    test_rows<E>(library);
    test_tables<E>(library);
    test_adamw<E>(library);
    test_idle_blocks<E>(library);
    test_dilated<E>(library);
    test_recurrent<E>(library);
    test_sampling<E>(library);
    test_gaussian<E>(library);
    if (!std::strstr(path, "avx2")) test_stack<E>(library);  // which uses oneDNN there
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) return std::fprintf(stderr, "usage: kernels_test LIBRARY THREADS\n"), 2;
#ifndef HEAP
    std::signal(SIGSEGV, out_of_bounds);
    std::signal(SIGBUS, out_of_bounds);
#endif
    const Library library(words[1]);
    library.use_threads(std::atoi(words[2]));
    test_product(library, !std::strstr(words[1], "avx2"));
    test_all<float>(library, words[1]);
    if (std::strstr(words[1], "bf16")) test_all<bf16>(library, words[1]);
    std::printf("%ld cases, %ld failures, %016llx\n", cases, failures, (unsigned long long)checksum);
    return failures != 0;
}
