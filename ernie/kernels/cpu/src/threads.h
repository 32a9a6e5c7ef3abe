// How the kernels share their work between OpenMP's threads, which are those of oneDNN as well.
//
// Sums over tokens are made in chunks of fixed size, added in order: they do not depend on the number of threads.
#pragma once
#include <omp.h>

#include <algorithm>

#include "memory.h"

namespace ernie {

constexpr long CHUNK = 64;  // tokens
inline long chunks(long tokens) { return (tokens + CHUNK - 1) / CHUNK; }

// Elements of vectors below which one thread is done before others have begun.
constexpr long FEW = 1 << 14;

}  // namespace ernie
