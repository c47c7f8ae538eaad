#pragma once
// Ranks that are processes, on one machine or many: they meet at a store, agree who is there, and talk over Gloo (CPU
// tensors) and NCCL (CUDA tensors). A peer that is lost becomes a CommError on every rank (vital_signs.h).
#include <memory>

#include "core/base/error.h"
#include "core/comm/communicator.h"
#include "core/comm/rank_place.h"

namespace loom {

struct WorldOptions {
  double timeout = 600;  // seconds that a collective waits for a peer that is alive
  double patience = 30;  // seconds without a sign of life after which a peer is lost
  double arrival = 120;  // seconds for all ranks to arrive
  // Large messages between processes of one machine are copied from memory to memory where the system allows it.
  bool share_memory = true;
};

// Another rank failed for a reason of its own, and says so itself.
class PeerFailed : public CommError {
 public:
  using CommError::CommError;
  ~PeerFailed() override;
};

// On all ranks of a run; returns when all have arrived. CommError names the ranks that did not.
std::unique_ptr<Communicator> join_world(const RankPlace& place, const WorldOptions& options = {});

}  // namespace loom
