#pragma once
// Operations of LibTorch that its C++ part cannot run on tensors without memory (Python has them): what they would
// allocate on CPU, so that a dry run gets past them. An operation that is missing here stops a plan with its name.

namespace loom {

// Once per process; operations that LibTorch has by now are left alone.
void install_meta_kernels();

}  // namespace loom
