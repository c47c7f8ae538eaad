#pragma once
// Who writes what, decided from what all ranks hold and from nothing else, so that every rank comes to the same plan.
// Boxes that several ranks hold are shared out evenly in bytes (ByteCheckpoint, NSDI 2025); no box is cut.
#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/part.h"

namespace loom {

struct PlannedBox {
  TensorPart part;
  int writer = 0;
  std::string key;  // within the writer's file
};

struct SavePlan {
  std::vector<PlannedBox> boxes;  // by name, then box: every element of every tensor once
  std::vector<int64_t> bytes;     // by rank: what it writes
};

// InternalError when the parts do not cover every tensor, or when ranks disagree about its type or shape.
SavePlan plan_save(const std::vector<std::vector<TensorPart>>& held_by_rank);

std::string rank_file(int rank);  // "rank-00003.safetensors"

}  // namespace loom
