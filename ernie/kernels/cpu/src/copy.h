// Copies of runs of bytes from and to any addresses.
#pragma once

namespace ernie {

// Copies bytes[i] bytes from from[i] to to[i], for each i of `count`; no two of the targets overlap.
void copy_runs(long count, void* const* to, const void* const* from, const long* bytes);

}  // namespace ernie
