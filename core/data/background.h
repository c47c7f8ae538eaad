#pragma once
// What a thread that prepares samples does before its first one, so that threads that compute notice it as little as
// possible.

namespace loom {

// This thread stands behind the others of the process, and calls of LibTorch stay on it: without this each thread that
// prepares samples would start a team of compute threads of its own.
void behind_compute();

}  // namespace loom
