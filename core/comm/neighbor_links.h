#pragma once
// Sockets between the processes of one machine that may read each other's memory. Whether they may is tried, not
// guessed: containers, users and kernels differ, and equal host names do not mean equal machines.
#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/rank_place.h"
#include "core/comm/store.h"

namespace loom {

struct NeighborLink {
  int peer = 0;
  int64_t process = 0;  // as this process sees it
  int socket = -1;      // keeps the borders of packets; owned by whoever gets the link
};

// All ranks together; `hosts` by rank; links by ascending peer. Without `wanted` this rank has no links, and nobody has
// one to it. CommError when a rank does not answer for `seconds`.
std::vector<NeighborLink> link_neighbors(Store& store, const RankPlace& place, const std::vector<std::string>& hosts,
                                         bool wanted, double seconds);

// Copies from the memory of another process (process_vm_readv of Linux); false when it cannot.
bool read_memory(int64_t process, uint64_t address, void* into, int64_t bytes);

}  // namespace loom
