// How the kernels split their work between OpenMP threads, which oneDNN uses as well.
//
// Sums over tokens are computed in chunks of fixed size and added in order, so they do not depend on the number of threads.
#pragma once
#include <omp.h>

#include <algorithm>

#include "memory.h"

namespace ernie {

constexpr long CHUNK = 64;  // tokens
inline long chunks(long tokens) { return (tokens + CHUNK - 1) / CHUNK; }

// With fewer elements than this, one thread is faster than several.
constexpr long FEW = 1 << 14;

}  // namespace ernie
