// Tells whether somebody has changed a matrix since it was copied, for little beside any use of it.
#pragma once
#include <cstdint>

namespace ernie {

// Another number for another matrix, made of 16 neighbours in each row.  From row to row they move on to the next 16
// columns: a change of one row is always seen, one of a column as well where there are a sixteenth as many rows as columns.
uint64_t fingerprint(const float* matrix, long rows, long columns);

}  // namespace ernie
