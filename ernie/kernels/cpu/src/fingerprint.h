// Tells whether somebody has changed a matrix since it was copied, for little beside any use of it.
#pragma once
#include <cstdint>

namespace ernie {

// Another number for another matrix, made of 16 neighbours in each row, or in some 16 of them where there are more.  From
// row to row they move on to the next 16 columns.  So a change of most rows or columns is seen, one of a few need not be.
uint64_t fingerprint(const float* matrix, long rows, long columns);

}  // namespace ernie
