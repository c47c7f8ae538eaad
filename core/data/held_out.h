#pragma once
// A source divided in two: what is trained on, and a share that is kept for evaluation. Which sample goes where follows
// from the sample's identity alone, so it is the same for every run, order and number of ranks, and stays when samples
// are added behind the others. Samples keep their keys and names.
#include <memory>

#include "core/data/source.h"

namespace loom {

struct DividedSource {
  std::shared_ptr<Source> kept, held;  // held is null for a source of one sample
};

// 0 < share < 1. At least one sample lands on each side.
DividedSource hold_out(std::shared_ptr<Source> source, double share);

}  // namespace loom
