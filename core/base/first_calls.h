#pragma once

namespace loom {

// The vector math library behind LibTorch (MKL's) settles on its routines when each is first called. Where several
// threads are the first at once, one of them gets a result with fewer digits (1e-9 in double). So whoever starts
// threads that compute calls this before; it does its work once per process.
void settle_vector_math();

}  // namespace loom
