// Reads one cache line of each sampled row.
#include "fingerprint.h"

#include <algorithm>
#include <cstring>

namespace ernie {

// The rotation matters: without it, sign flips in two rows would change the highest bit only, and cancel out.
static uint32_t mixed(uint32_t state, uint32_t bits) {
    state ^= bits;
    return (state << 13 | state >> 19) * 0x9e3779b1u;
}

uint64_t fingerprint(const float* matrix, long rows, long columns) {
    // Elements per row, and rows at most: hashing all rows of a base model took 5 ms, inference on a short sentence 72.
    constexpr long WIDTH = 16, MAX_ROWS = 16;
    const long last = std::max(0l, columns - WIDTH), count = std::min(columns, WIDTH), step = (rows + MAX_ROWS - 1) / MAX_ROWS;
    uint32_t states[WIDTH] = {}, bits[WIDTH] = {};
    for (long row = 0, at = 0; row < rows; row += step, at = at < last ? std::min(at + WIDTH, last) : 0) {
        std::memcpy(bits, matrix + row * columns + at, size_t(count) * sizeof(float));
        for (long i = 0; i < WIDTH; i++) states[i] = mixed(states[i], bits[i]);
    }
    uint32_t low = 0, high = 1;
    for (uint32_t state : states) low = mixed(low, state), high = mixed(high + state, low);
    return uint64_t(high) << 32 | low;
}

}  // namespace ernie
