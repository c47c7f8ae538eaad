#pragma once
// N ranks as N threads of one process, for tests and for trying a layout on one machine. CPU tensors only: autograd has
// one worker thread per GPU, which several ranks would share.
#include <functional>

#include "core/comm/communicator.h"

namespace loom {

struct LoopbackOptions {
  double timeout = 120;  // seconds that a rank waits for a peer
  int threads = 1;       // compute threads of each rank
  uint64_t delays = 0;   // > 0: seed of small random delays before sending, to shake the order of events
};

// Runs `body` once per rank, each in a thread of its own, and returns when all are done. When one fails, the others are
// woken with a CommError that carries its words ("rank 2 failed: ..."); the first failure is thrown here again, with
// its class. A rank that waits too long names whom it waits for and what that one is doing: "rank 0 waits for rank 2 in
// 'backbone.head: weights' since 120 s; rank 2 waits for rank 1 in 'encoders.image.embed: weights'; rank 1 runs".
void run_loopback(int world, const LoopbackOptions& options, const std::function<void(Communicator&)>& body);
inline void run_loopback(int world, const std::function<void(Communicator&)>& body) { run_loopback(world, {}, body); }

}  // namespace loom
