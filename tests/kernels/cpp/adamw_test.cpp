// AdamW, and the sum of squares.
#include "library.h"
#include "memory.h"

namespace {

template <class T>
void same(const char* what, Array<T>& found, Array<T>& wanted) {
    if (std::memcmp(found.data(), wanted.data(), size_t(found.size()) * sizeof(T))) fail("%s has other bits", what);
    add_to_checksum(found.data(), size_t(found.size()) * sizeof(T));
}

}  // namespace

template <class E>
void test_adamw(const Library& library) {
    for (long count : {1, 7, 8, 15, 16, 17, 100, 16384, 16385, 40001}) {
        begin("adamw, %ld weights, %s copy", count, low<E> ? "with" : "without");
        Array<float> weight(count), grad(count), moment1(count), moment2(count);
        Array<bf16> copy(count);
        Doubles w = fill(weight), g = fill(grad), m = fill(moment1), s = fill(moment2, 0, 0.5);
        const ernie::AdamW step{1e-2f, 0.9f, 0.99f, 1e-6f, 0.1f, 2.f, 3.f, 0.5f};
        double squares = 0, wanted_squares = 0;
        for (long i = 0; i < count; i++) {
            wanted_squares += g[i] * g[i];
            g[i] *= step.gradient_scale;
            m[i] = step.beta1 * m[i] + (1 - step.beta1) * g[i];
            s[i] = step.beta2 * s[i] + (1 - step.beta2) * g[i] * g[i];
            w[i] = w[i] * (1 - step.rate * step.decay) -
                   step.rate * m[i] * step.correction1 / (std::sqrt(s[i] * step.correction2) + step.epsilon);
        }
        succeeds(library.call("squares", (const float*)grad, count, &squares));
        if (!(std::abs(squares - wanted_squares) <= 1e-5 * wanted_squares)) fail("the sum of squares is %g, not %g", squares, wanted_squares);
        succeeds(library.call("adamw", &step, weight.data(), (const float*)grad, moment1.data(), moment2.data(),
                              low<E> ? (void*)copy.data() : nullptr, (uint8_t*)nullptr, count));
        expect("weight", weight.data(), w, 1e-6);
        expect("moment1", moment1.data(), m, 1e-6);
        expect("moment2", moment2.data(), s, 1e-6);
        if (low<E>) expect("copy", copy.data(), w, 1.0 / 256);
    }
}

// Four steps of a weight most of whose blocks have no gradient at first, knowing their moments and not: the same bits.
template <class E>
void test_idle_blocks(const Library& library) {
    for (float decay : {0.f, 0.1f})
        for (long count : {1, 255, 256, 257, 16384, 40001}) {
            begin("adamw, %ld weights, idle blocks, decay %g, %s copy", count, decay, low<E> ? "with" : "without");
            Array<float> weight(count), grad(count), moment1(count), moment2(count), weight2(count), moment12(count), moment22(count);
            Array<bf16> copy(count), copy2(count);
            Array<uint8_t> known((count + ernie::IDLE_BLOCK - 1) / ernie::IDLE_BLOCK);
            std::fill(known.data(), known.data() + known.size(), uint8_t(0));
            fill(weight);
            std::copy(weight.data(), weight.data() + count, weight2.data());
            for (float* moments : {moment1.data(), moment2.data(), moment12.data(), moment22.data()}) std::fill(moments, moments + count, 0.f);
            if (count > 20000) moment1.data()[20000] = moment12.data()[20000] = 0.25f;  // of a state that was loaded
            for (int t = 0; t < 4; t++) {
                fill(grad);
                for (long i = 0; i < count; i++)
                    if ((i / 300) % 4 > t) grad.data()[i] = i % 2 ? 0.f : -0.f;
                const ernie::AdamW step{1e-2f, 0.9f, 0.99f, 1e-6f, decay, 2.f, 3.f, 0.5f};
                succeeds(library.call("adamw", &step, weight.data(), (const float*)grad, moment1.data(), moment2.data(),
                                      low<E> ? (void*)copy.data() : nullptr, known.data(), count));
                succeeds(library.call("adamw", &step, weight2.data(), (const float*)grad, moment12.data(), moment22.data(),
                                      low<E> ? (void*)copy2.data() : nullptr, (uint8_t*)nullptr, count));
                same("weight", weight, weight2);
                same("moment1", moment1, moment12);
                same("moment2", moment2, moment22);
                if (low<E>) same("copy", copy, copy2);
            }
        }
}

template void test_idle_blocks<float>(const Library&);
template void test_idle_blocks<bf16>(const Library&);
template void test_adamw<float>(const Library&);
template void test_adamw<bf16>(const Library&);
