#pragma once
// Names that randomness and losses are keyed by.
#include <cstdint>
#include <string>

namespace loom {

// A place in a model that draws random numbers; declared in a constructor so that it does not depend on execution
// order.
struct Site {
  uint64_t id = 0;
};

// What a named sum of losses is divided by: a global count of the step, the same on every rank.
enum class Denominator { supervised_tokens = 1, rows, samples };

enum class Phase { train = 1, evaluate, generate };

}  // namespace loom
