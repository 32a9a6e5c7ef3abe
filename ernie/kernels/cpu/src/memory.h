// Long-lived memory: scratch buffers that are reused, and allocations that live as long as their owner.
//
// Large allocations use 2 MB pages if the kernel grants them: a weight that is read from memory in each product then costs
// one page walk per 2 MB instead of one per 4 KB.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ernie {

inline long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

// Allocates at least `bytes`; release with std::free.
inline void* allocate(size_t bytes) {
    constexpr size_t PAGE = 2 << 20;
    const size_t alignment = bytes >= 4 * PAGE ? PAGE : 64;
    bytes = size_t(round_up(long(bytes), long(alignment)));
    void* found = std::aligned_alloc(alignment, bytes);
    if (!found) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (alignment == PAGE) madvise(found, bytes, MADV_HUGEPAGE);  // only a hint: may be refused
#endif
    return found;
}

// A buffer that is kept from call to call and only ever grows.
class Scratch {
public:
    ~Scratch() { std::free(memory_); }
    template <class T>
    T* get(long count) {
        const size_t bytes = size_t(count) * sizeof(T) + 64;
        if (bytes > size_) {
            std::free(memory_);
            memory_ = nullptr, size_ = 0;
            memory_ = allocate(bytes);
            size_ = bytes;
        }
        return static_cast<T*>(memory_);
    }

private:
    void* memory_ = nullptr;
    size_t size_ = 0;
};

// Objects that computations at the same time use one each of, such as scratch memory: as many as ever ran at once.
template <class T>
class Pool {
public:
    // One of the objects, for as long as this lives.
    class Loan {
    public:
        explicit Loan(Pool& pool) : pool_(pool), item_(pool.take()) {}
        ~Loan() { pool_.put(std::move(item_)); }
        Loan(const Loan&) = delete;
        T& operator*() { return *item_; }
        T* operator->() { return item_.get(); }

    private:
        Pool& pool_;
        std::unique_ptr<T> item_;
    };

private:
    std::unique_ptr<T> take() {
        std::lock_guard<std::mutex> guard(mutex_);
        if (free_.empty()) return std::make_unique<T>();
        std::unique_ptr<T> found = std::move(free_.back());  // the last one returned, which the caches may still hold
        free_.pop_back();
        return found;
    }
    void put(std::unique_ptr<T> item) {
        std::lock_guard<std::mutex> guard(mutex_);
        free_.push_back(std::move(item));
    }

    std::mutex mutex_;
    std::vector<std::unique_ptr<T>> free_;
};

// Allocations aligned to 64 bytes, side by side in large blocks, all freed together.
class Arena {
public:
    void* get(size_t bytes) {
        bytes = size_t(round_up(long(bytes), 64));
        if (bytes > left_) {
            left_ = std::max(bytes, BLOCK);
            blocks_.emplace_back(allocate(left_), std::free);
            next_ = static_cast<char*>(blocks_.back().get());
        }
        void* found = next_;
        next_ += bytes, left_ -= bytes;
        return found;
    }

private:
    static constexpr size_t BLOCK = 32 << 20;
    std::vector<std::unique_ptr<void, void (*)(void*)>> blocks_;
    char* next_ = nullptr;
    size_t left_ = 0;
};

}  // namespace ernie
