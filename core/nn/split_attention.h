#pragma once
// Attention over segments that lie on several ranks, by heads or by tiles of rows (attention_tiles.h). By heads
// (Ulysses: DeepSpeed-Ulysses, VeOmni), every rank that holds queries of a segment computes a share of its heads over
// all its rows: rows of q, k, v move to the heads' owners, the output moves back. Key/value groups travel whole; with
// more ranks than groups, a group's query heads are divided among ranks that each receive its keys and values. Which
// rows move where follows from the segments' pieces alone.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/attention.h"
#include "core/nn/attention_tiles.h"
#include "core/nn/varlen_attention.h"
#include "core/reshard/redistribute.h"
#include "core/step/segments.h"

namespace loom {

class Communicator;

// Heads [q_begin, q_end) with key/value heads [kv_begin, kv_end).
struct HeadShare {
  int64_t q_begin = 0, q_end = 0, kv_begin = 0, kv_end = 0;
};

// Shares of `ranks` ranks, as even as whole groups (or, with more ranks than groups, whole heads) allow.
std::vector<HeadShare> share_heads(int64_t heads, int64_t kv_heads, int ranks);

// What one rank does for one pair of partitions: ranges that are all its own, and jobs with others.
struct AttentionPlan {
  struct Job {  // all rows of a segment, some heads; memory in elements of head_dim
    int64_t q_rows = 0, k_rows = 0, q_at = 0, kv_at = 0;
    HeadShare share;
  };
  std::vector<AttentionRange> local;
  std::vector<Job> jobs;                    // by heads
  std::vector<AttentionTile> tiles;         // by rows
  Route q, kv;                              // elements are heads of a row
  int64_t q_elements = 0, kv_elements = 0;  // of this rank's jobs
  int64_t split_segments = 0;               // that this rank holds queries of, together with others
  bool alone() const {
    return jobs.empty() && tiles.empty() && !q.remote() && !kv.remote() && q.local.empty() && kv.local.empty();
  }
};

// Pairs query and key segments by id. A query segment without a partner has no keys. `tile_queries`: kByHeads, or how
// to cut tiles (plan_tile).
AttentionPlan plan_attention(const Segments& queries, const Segments& keys, int64_t heads, int64_t kv_heads, int rank,
                             int tile_queries = kByHeads);

// What the backward of an attention with jobs needs; also what a recomputation takes instead of computing it again.
struct SplitAttention {
  VarlenResult local;  // output holds the jobs' rows, too; and both those of tiles
  Tensor q, k, v;      // of the jobs, flat
  std::vector<VarlenResult> jobs;
};

// q, k and v of an attention by heads on their way to whoever computes those heads, each from the moment it is there.
class HeadMoves {
 public:
  HeadMoves(Communicator& comm, std::string what, std::shared_ptr<const AttentionPlan> plan, int64_t head_dim);
  ~HeadMoves();
  void start(AttentionInput input, const Tensor& rows);  // of this rank, contiguous
  Tensor finish(AttentionInput input);                   // of the jobs, flat

 private:
  struct Way;
  Communicator& comm_;
  std::string what_;
  std::shared_ptr<const AttentionPlan> plan_;
  int64_t head_dim_;
  std::map<AttentionInput, Way> ways_;
};

struct SplitCall {
  Communicator& comm;
  std::string what;  // "backbone.blocks.3: attention"
  std::shared_ptr<const AttentionPlan> plan;
  VarlenShape shape;
  std::shared_ptr<HeadMoves> moves{};                         // of all three, by heads; null = not yet started
  std::shared_ptr<const SplitAttention> kept{};               // in a recomputation
  std::shared_ptr<const SplitAttention>* computed = nullptr;  // what to keep
};

// With autograd, as varlen_attention. By heads four exchanges forward (q, k, v, each by itself; output), two backward.
Tensor split_attention(const SplitCall& call, const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace loom
