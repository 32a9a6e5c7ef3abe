// The peak throughput of this machine's multiply-add units.
#pragma once

namespace ernie {

// All threads multiply and add in registers, `rounds` times; returns the number of operations.
template <class E>
double peak(long rounds);

}  // namespace ernie
