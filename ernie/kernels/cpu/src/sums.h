// The sums of a strip of C, to which products are added: in C itself if the strip has WIDTH columns, else beside it.
#pragma once
#include "small_product.h"

namespace ernie {

constexpr long WIDTH = COLUMNS * LANES;  // columns of a strip

class Sums {
public:
    // They begin as what C holds (`add`), the bias or zero.  `width` columns of C, at most WIDTH.
    Sums(long rows, long width, const float* bias, float* C, long ldc, bool add, Scratch& memory)
        : at(width == WIDTH ? C : memory.get<float>(rows * WIDTH)), stride(width == WIDTH ? ldc : WIDTH), rows_(rows), width_(width), C_(C), ldc_(ldc) {
        if (at == C && add) return;
        for (long m = 0; m < rows; m++)
            for (long n = 0; n < width; n += LANES) {
                const Mask there = first(width - n);
                store(at + m * stride + n, add ? load(C + m * ldc + n, there) : bias ? load(bias + n, there) : zero());
            }
    }
    // Copies to C what lies beside it.
    void finish() {
        if (at == C_) return;
        for (long m = 0; m < rows_; m++)
            for (long n = 0; n < width_; n += LANES) store(C_ + m * ldc_ + n, load(at + m * stride + n), first(width_ - n));
    }

    float* const at;
    const long stride;

private:
    const long rows_, width_;
    float* const C_;
    const long ldc_;
};

}  // namespace ernie
