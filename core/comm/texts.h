#pragma once
// Texts of all ranks, of any length.
#include <string>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"

namespace loom {

// Every rank's text, by rank. All ranks call it.
std::vector<std::string> exchange_texts(Communicator& comm, std::string_view what, const std::string& text);

// Every rank's text on `root`, by rank; elsewhere nothing. All ranks call it; only the root waits for the others.
std::vector<std::string> gather_texts(Communicator& comm, std::string_view what, int root, const std::string& text);

}  // namespace loom
