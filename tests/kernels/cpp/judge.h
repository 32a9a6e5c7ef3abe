// Comparison of results with expected values; differences are printed with the test case.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "vec.h"

using ernie::bf16;
typedef std::vector<double> Doubles;

inline std::mt19937_64 generator;

// The running test case, for messages, and the numbers of cases and failures.
inline char current_case[256];
inline long cases, failures;

__attribute__((format(printf, 1, 2))) inline void begin(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(current_case, sizeof current_case, format, arguments);
    va_end(arguments);
    cases++;
    generator.seed(std::hash<std::string_view>()(current_case));  // independent of the other cases
}

__attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
    if (failures++ > 20) return;
    std::fprintf(stderr, "%s: ", current_case);
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
}

inline void succeeds(const char* message) {
    if (message) fail("the kernel says: %s", message);
}

// A hash of all outputs: equal for any number of threads.
inline uint64_t checksum = 0xcbf29ce484222325u;
inline void add_to_checksum(const void* data, size_t bytes) {  // FNV-1a
    for (size_t i = 0; i < bytes; i++) checksum = (checksum ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
}

inline double as_double(float x) { return x; }
inline double as_double(bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// Expect each element within `tolerance` of the wanted one, relative to the largest element (or 1), or to the largest of
// `sizes` if given.
template <class T>
void expect(const char* what, const T* found, const Doubles& wanted, double tolerance, const Doubles& sizes = {}) {
    double largest = 1;
    for (double w : sizes.empty() ? wanted : sizes) largest = std::max(largest, std::abs(w));
    for (size_t i = 0; i < wanted.size(); i++)
        if (!(std::abs(as_double(found[i]) - wanted[i]) <= tolerance * largest)) {
            fail("%s[%zu] is %g, not %g", what, i, as_double(found[i]), wanted[i]);
            break;
        }
    add_to_checksum(found, wanted.size() * sizeof(T));
}

inline double normal() { return std::normal_distribution<double>()(generator); }
inline long between(long low, long high) { return std::uniform_int_distribution<long>(low, high)(generator); }

inline void put(float& to, double x) { to = float(x); }
inline void put(bf16& to, double x) {  // truncated: the direction of rounding does not matter for an input
    float value = float(x);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    to.bits = uint16_t(bits >> 16);
}

// Fills an array with random numbers and returns them as stored.
template <class A>
Doubles fill(A& array, double scale = 1, double center = 0) {
    Doubles values;
    for (long i = 0; i < array.size(); i++) {
        put(array[i], center + scale * normal());
        values.push_back(as_double(array[i]));
    }
    return values;
}

// Dropout of one element: Philox 4x32 with seven rounds, as specified in src/dropout.h.
struct Drop {
    float probability;
    uint64_t seed;
    uint32_t site;

    uint32_t threshold() const { return uint32_t(double(probability) * 4294967296.0); }
    double factor(uint32_t row, long column, uint32_t plane = 0) const {
        uint32_t c[4] = {uint32_t(column / 64 * 16 + column % 16), row, plane, site};
        uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
        for (int round = 0; round < 7; round++) {
            const uint64_t one = uint64_t(c[0]) * 0xD2511F53u, two = uint64_t(c[2]) * 0xCD9E8D57u;
            const uint32_t next[4] = {uint32_t(two >> 32) ^ c[1] ^ key[0], uint32_t(two), uint32_t(one >> 32) ^ c[3] ^ key[1], uint32_t(one)};
            std::memcpy(c, next, sizeof c);
            key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
        }
        return c[column % 64 / 16] >= threshold() ? 1 / (1 - threshold() / 4294967296.0) : 0;
    }
};
