#include "copy.h"

#include <cstring>

#include "threads.h"

namespace ernie {

void copy_runs(long count, void* const* to, const void* const* from, const long* bytes) {
    constexpr long ALONE = 64 << 10;  // bytes that one thread copies in less time than others take to join it
    long total = 0;
    for (long i = 0; i < count; i++) total += bytes[i];
#pragma omp parallel for schedule(static) if (total > ALONE)
    for (long i = 0; i < count; i++) std::memcpy(to[i], from[i], size_t(bytes[i]));
}

}  // namespace ernie
