#pragma once
// Work that ranks do each on their own and that must have one outcome: it succeeded everywhere, or all of them throw
// the same error. Nobody waits for a rank that has failed, and a rank that only works for long is not taken for a lost
// one.
#include <functional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace loom {

// Runs `work` on every rank, on a thread of its own when there are several ranks, and returns what it returned, by
// rank. Where it failed anywhere, all ranks throw the first failing rank's error, of the same class.
std::vector<std::string> together(Communicator& comm, const std::string& what,
                                  const std::function<std::string()>& work);

}  // namespace loom
