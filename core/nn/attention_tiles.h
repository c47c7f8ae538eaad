#pragma once
// Attention of one segment over the ranks that hold it, without cutting heads: a rank attends with the queries of some
// ranks to the keys and values of some ranks, a tile of the matrix of all pairs. With n = a * b ranks, tiles are a
// chunks of queries by b chunks of keys (Mesh-Attention, arXiv 2512.20968); a = 1 is ring attention (Liu et al. 2023).
// A chunk is what one rank holds of the segment, in one run of rows or several (zigzag). Pure functions of the
// segment's pieces.
//
// Rank i has the queries of ranks r * a + 0 ... a - 1 with r = i / a and the keys of ranks i % a + 0, a, 2 a, ..., its
// own among both. Sent by each rank, in chunks of queries Q and of keys or values K: forward 2 (a - 1) Q + 2 (b - 1) K,
// backward 3 (a - 1) Q + 4 (b - 1) K, and a number per query and head with every partial output (log-sum-exp), two with
// every query of the backward (log-sum-exp, delta).
#include <cstdint>
#include <functional>
#include <vector>

#include "core/nn/varlen_attention.h"
#include "core/step/segments.h"
#include "core/step/world_layout.h"

namespace loom {

struct AttentionChunk {
  struct Run {
    int64_t begin = 0, rows = 0;  // within the segment
    int64_t local_row = 0;        // in the rank's tensor
  };
  std::vector<Run> runs;  // ascending
  int64_t rows() const;
};

struct AttentionTile {
  int64_t q_rows = 0, k_rows = 0;     // of the whole segment
  std::vector<int> ranks;             // members, ascending: whoever holds queries or keys
  std::vector<AttentionChunk> q, kv;  // by member
  int queries = 1;                    // a
  int me = -1;                        // this rank's place among the members; -1 = none
  int keys() const { return static_cast<int>(ranks.size()) / queries; }  // b
  // The member whose queries (keys) reach this one, and the member that gets its own, in a step; step 0 is itself.
  int queries_from(int step) const;
  int queries_to(int step) const;
  int keys_from(int step) const;
  int keys_to(int step) const;
};

// `queries`: the a that is wanted, of which the tile's is the greatest common divisor with the number of members; or
// kLeastTraffic. `kv_share`: width of a key over that of a query. `k` may be null: no keys.
AttentionTile plan_tile(const SplitSegment& q, const SplitSegment* k, int rank, int queries, double kv_share = 1);
// The divisor of `members` that costs least; a larger one must cost less than `worthwhile` of the best smaller one.
int best_divisor(int members, const std::function<double(int)>& cost, double worthwhile = 1);
// The a that sends least in a forward and its backward; of equal ones the smallest, which holds least.
int least_traffic(int members, double kv_share);

// Which rows of a query chunk see which keys of one run. Query ranges are disjoint; rows count from the beginnings of
// the chunks, of which the run begins at `k_at`.
std::vector<AttentionRange> visible_ranges(const AttentionTile& tile, const AttentionChunk& q,
                                           const AttentionChunk::Run& keys, int64_t k_at, const VarlenShape& shape);

}  // namespace loom
