#include "gaussian.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ernie {

void gaussian_attention(long N, const int64_t* offsets, long D, const float* positions, const float* precisions, const float* middles,
                        const float* values, float* attended, int64_t* most) {
    std::vector<float> scores;
    for (long n = 0; n < N; n++) {
        const long first = long(offsets[n]), L = long(offsets[n + 1]) - first;
        scores.resize(L);
        for (long t = 0; t < L; t++) {
            const float distance = middles[first + t] - positions[n];
            scores[t] = -0.5f * precisions[n] * distance * distance;
        }
        most[n] = std::max_element(scores.begin(), scores.end()) - scores.begin();
        const float highest = scores[most[n]];
        float sum = 0;
        for (float& score : scores) sum += score = std::exp(score - highest);
        float* const own = attended + n * D;
        std::fill_n(own, D, 0.f);
        for (long t = 0; t < L; t++)
            for (long d = 0; d < D; d++) own[d] += scores[t] / sum * values[(first + t) * D + d];
    }
}

}  // namespace ernie
