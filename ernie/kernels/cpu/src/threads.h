// How the kernels share their work between OpenMP's threads, which are those of oneDNN as well.
//
// Sums over tokens are made in chunks of fixed size, added in order: they do not depend on the number of threads.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace ernie {

constexpr long CHUNK = 64;  // tokens
inline long chunks(long tokens) { return (tokens + CHUNK - 1) / CHUNK; }

inline long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

// Memory that a thread keeps from call to call, and only ever lets grow.
class Scratch {
public:
    ~Scratch() { std::free(memory_); }
    template <class T>
    T* get(long count) {
        size_t bytes = round_up(count * long(sizeof(T)) + 64, 64);
        if (bytes > size_) {
            std::free(memory_);
            memory_ = std::aligned_alloc(64, bytes);
            size_ = memory_ ? bytes : 0;
            if (!memory_) throw std::bad_alloc();
        }
        return static_cast<T*>(memory_);
    }

private:
    void* memory_ = nullptr;
    size_t size_ = 0;
};

}  // namespace ernie
