#pragma once
// Before ranks do anything together they make sure that they are about to do the same.
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace loom {

// Something that must be the same text on every rank.
struct Fact {
  std::string name;  // "recipe"
  std::string text;  // any number of lines
};

// UserError, the same on all ranks, when a rank's text is not that of rank 0: "rank 3: its recipe differs from rank 0's
// in line 12: 'lr: 0.001' instead of 'lr: 0.002'".
void agree(Communicator& comm, const std::vector<Fact>& facts);

// "line 12: 'lr: 0.001' instead of 'lr: 0.002'"; "" when both are the same (exposed for tests).
std::string first_difference(const std::string& mine, const std::string& expected);

}  // namespace loom
