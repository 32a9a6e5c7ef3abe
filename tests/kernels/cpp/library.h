// The library under test, loaded from a built file, with the functions declared in src/api.cpp.
#pragma once
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "adamw.h"
#include "attention.h"

class Library {
public:
    explicit Library(const char* path) : handle_(dlopen(path, RTLD_LAZY)) {  // lazily, since oneDNN is missing here
        if (!handle_) {
            std::fprintf(stderr, "%s\n", dlerror());
            std::exit(2);
        }
    }
    // Calls the function ernie_NAME; the arguments must have exactly the types in api.cpp.
    template <class... Arguments>
    const char* call(const char* name, Arguments... arguments) const {
        char symbol[64];
        std::snprintf(symbol, sizeof symbol, "ernie_%s", name);
        void* function = dlsym(handle_, symbol);
        if (!function) {
            std::fprintf(stderr, "%s\n", dlerror());
            std::exit(2);
        }
        return reinterpret_cast<const char* (*)(Arguments...)>(function)(arguments...);
    }
    void use_threads(int n) const { reinterpret_cast<void (*)(int)>(dlsym(handle_, "ernie_kernels_threads"))(n); }

private:
    void* handle_;
};

// The tests of each file of kernels; E is the type that a kernel computes in, float or bf16.
template <class E>
constexpr int low = sizeof(E) == 2;
template <class E>
void test_attention(const Library&);
template <class E>
void test_tables(const Library&);
template <class E>
void test_rows(const Library&);
template <class E>
void test_adamw(const Library&);
template <class E>
void test_idle_blocks(const Library&);
template <class E>
void test_dilated(const Library&);
template <class E>
void test_recurrent(const Library&);
template <class E>
void test_sampling(const Library&);
template <class E>
void test_gaussian(const Library&);
template <class E>
void test_stack(const Library&);
void test_product(const Library&, bool needs_onednn);
