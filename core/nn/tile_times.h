#pragma once
// The shape of attention tiles (attention_tiles.h) that takes least time, from what was measured on these ranks: more
// chunks of queries send less, but a chunk of keys hides behind more work. A model of the order in which tile_attention
// does things, with a link that carries one message after the other.
#include <cstdint>

#include <c10/core/ScalarType.h>

#include "core/base/tensor.h"

namespace loom {

class Communicator;

// Seconds of the slowest rank.
struct TileTimes {
  double message = 0;    // of an exchange with two neighbours, however small
  double byte = 0;       // sent, while as many arrive
  double operation = 0;  // of attention, forward; a multiply-add is two
};

// Of a whole segment on `members` ranks in equal chunks.
struct TileWork {
  int members = 1;
  int64_t rows = 0;
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  int64_t element_bytes = 4;
  bool causal = true;
};

// A forward and its backward with `queries` chunks of queries (a divisor of members).
double tile_seconds(const TileWork& work, int queries, const TileTimes& times);
// The divisor that takes least; of those within one percent the smallest, which holds least.
int least_time(const TileWork& work, const TileTimes& times);

// Takes a moment, on all ranks at once. The same numbers on every rank.
TileTimes measure_tiles(Communicator& comm, at::ScalarType type, c10::Device device);

}  // namespace loom
