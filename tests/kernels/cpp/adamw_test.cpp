// AdamW, and the sum of squares.
#include "library.h"
#include "memory.h"

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
                              low<E> ? (void*)copy.data() : nullptr, count));
        expect("weight", weight.data(), w, 1e-6);
        expect("moment1", moment1.data(), m, 1e-6);
        expect("moment2", moment2.data(), s, 1e-6);
        if (low<E>) expect("copy", copy.data(), w, 1.0 / 256);
    }
}

template void test_adamw<float>(const Library&);
template void test_adamw<bf16>(const Library&);
