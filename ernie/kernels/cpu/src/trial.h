// A trial of the products, as the library is loaded: what a wrong team of threads or a foreign oneDNN leaves out is found here.
#pragma once

namespace ernie {

// Compares products of each type, with weights as they are and packed, with plain loops.  Throws with the type that is wrong.
void try_products();

}  // namespace ernie
