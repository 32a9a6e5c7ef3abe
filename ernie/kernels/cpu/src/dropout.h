// Which elements dropout keeps, as a pure function of (seed, site, row, column).
//
// Philox 4x32 with seven rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, the fewest
// rounds that pass BigCrush).  It has no state: the backward pass, a recomputation and any number of threads see the
// same mask, and different sites and seeds see unrelated masks.
#pragma once
#include "vec.h"

namespace ernie {

class Dropout {
public:
    static constexpr long BLOCK = 64;  // columns that share a draw: lane l of word w is column 16 w + l

    Dropout(float probability, uint64_t seed, uint32_t site)
        : threshold_(uint32_t(double(probability) * 4294967296.0)),
          scale_(float(1.0 / (1.0 - double(threshold_) / 4294967296.0))),
          key_{uint32_t(seed), uint32_t(seed >> 32)},
          site_(site) {}

    bool on() const { return threshold_ != 0; }
    float scale() const { return scale_; }  // the factor for kept elements

    // For columns 64 block + 16 w + from + (0 .. LANES - 1) of a row, w = 0 .. 3: whether they are kept.
    void columns(uint32_t row, uint32_t block, uint32_t from, Mask kept[4], uint32_t plane = 0) const {
        draw(lanes() + all(16 * block + from), all(row), plane, kept);
    }
    // For column 64 block + 16 w + l of the rows row + (0 .. LANES - 1), w = 0 .. 3.
    void rows(uint32_t row, uint32_t block, uint32_t l, Mask kept[4], uint32_t plane = 0) const {
        draw(all(16 * block + l), lanes() + all(row), plane, kept);
    }

private:
    uint32_t threshold_;
    float scale_;
    uint32_t key_[2];
    uint32_t site_;

    void draw(Ints column, Ints row, uint32_t plane, Mask kept[4]) const {
        Ints c0 = column, c1 = row, c2 = all(plane), c3 = all(site_), high0, low0, high1, low1;
        uint32_t k0 = key_[0], k1 = key_[1];
        for (int round = 0; round < 7; round++) {
            multiply(c0, all(0xD2511F53u), high0, low0);
            multiply(c2, all(0xCD9E8D57u), high1, low1);
            c0 = high1 ^ c1 ^ all(k0);
            c1 = low1;
            c2 = high0 ^ c3 ^ all(k1);
            c3 = low0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        Ints words[4] = {c0, c1, c2, c3};
        for (int w = 0; w < 4; w++) kept[w] = at_least(words[w], all(threshold_));
    }
};

}  // namespace ernie
