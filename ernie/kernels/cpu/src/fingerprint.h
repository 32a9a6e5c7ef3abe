// A cheap check of whether a matrix has changed since it was copied.
#pragma once
#include <cstdint>

namespace ernie {

// A hash of 16 adjacent elements of each row, or of each of up to 16 evenly spaced rows if there are more.  The columns
// move by 16 from one row to the next.  So a change of most rows or columns is detected; a change of a few may not be.
uint64_t fingerprint(const float* matrix, long rows, long columns);

}  // namespace ernie
