#pragma once
// Is a checkpoint what its manifest says? Everything is read once; nothing is loaded.
#include <string>
#include <vector>

namespace loom {

// One line per damage, each naming the file; empty when all is well.
std::vector<std::string> verify_checkpoint(const std::string& folder);

}  // namespace loom
