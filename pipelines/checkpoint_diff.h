#pragma once
// What two checkpoints have in common, tensor by tensor and bit by bit, under whatever layouts they were saved.
#include <iosfwd>
#include <string>

namespace loom {

// Writes one line per difference and one that sums up. 0 when all tensors are equal, 1 when not, as `cmp` has it.
int diff_checkpoints(const std::string& first, const std::string& second, std::ostream& out);

}  // namespace loom
