// Arrays that detect out-of-bounds accesses.
//
// An array ends at a protected page: reading or writing one byte beyond ends the program.  The bytes before it hold a
// pattern that is checked at the end.  With -DHEAP an array is a heap block of exactly its size, so that
// AddressSanitizer and valgrind know its bounds and which of its elements are uninitialized.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "judge.h"

template <class T>
class Array {
public:
    explicit Array(long count) : count_(count), bytes_(size_t(count) * sizeof(T)) {
#ifdef HEAP
        data_ = static_cast<T*>(std::malloc(bytes_));
#else
        page_ = size_t(sysconf(_SC_PAGESIZE));
        mapped_ = (bytes_ + page_ - 1) / page_ * page_ + page_;  // at least a page before the array
        memory_ = static_cast<char*>(mmap(nullptr, mapped_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (memory_ == MAP_FAILED || mprotect(memory_ + mapped_, page_, PROT_NONE)) std::abort();
        std::memset(memory_, PATTERN, mapped_);
        data_ = reinterpret_cast<T*>(memory_ + mapped_ - bytes_);
#endif
    }
    Array(const Array&) = delete;
    ~Array() {
#ifdef HEAP
        std::free(data_);
#else
        for (char* byte = memory_; byte < reinterpret_cast<char*>(data_); byte++)
            if (*byte != PATTERN) {
                fail("a write before the beginning of an array");
                break;
            }
        munmap(memory_, mapped_ + page_);
#endif
    }

    long size() const { return count_; }
    T* data() { return data_; }
    T& operator[](long i) { return data_[i]; }
    operator T*() { return data_; }

private:
    static constexpr char PATTERN = 0x5a;
    long count_;
    size_t bytes_;
    T* data_;
#ifndef HEAP
    size_t page_, mapped_;
    char* memory_;
#endif
};
