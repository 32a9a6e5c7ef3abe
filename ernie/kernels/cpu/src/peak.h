// What the multiply-add units of this machine can do at most.
#pragma once

namespace ernie {

// All threads multiply and add in their registers, `rounds` times; returns how many operations that were.
template <class E>
double peak(long rounds);

}  // namespace ernie
