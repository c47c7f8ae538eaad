#pragma once
// What both passes of tile attention are made of. A pass is a list of stages, each a transfer and the work that it
// allows. The next transfer is started before the last one's work begins, unless it carries a result of that work; so
// one chunk of keys is on its way while another one is attended to. Keys are dropped after their stage; a chunks of
// queries stay.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/nn/attention_tiles.h"

namespace loom::tiles {

struct Stage {
  std::function<Pending()> start;
  std::function<void()> finish;
  int after = -1;  // the stage whose work must have ended before the transfer may start
};

class Schedule {
 public:
  // Returns the stage's number.
  int add(std::function<Pending()> start, std::function<void()> finish, int after = -1);
  // A stage that moves nothing.
  int add(std::function<void()> work);
  void run();

 private:
  std::vector<Stage> stages_;
};

// The rows of a chunk, one after the other; a copy when it has several runs, or into a place for them.
Tensor rows_of(const Tensor& x, const AttentionChunk& chunk);
void read_rows(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows);
void write_rows(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows);
void add_rows(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows);

using Pieces = std::vector<std::pair<std::vector<int64_t>, at::ScalarType>>;

// One message of tensors of several types, one after the other; each begins at a multiple of eight bytes.
class Parcel {
 public:
  Parcel(const Pieces& pieces, const Tensor& like);
  const Tensor& operator[](size_t i) const { return pieces_[i]; }
  const Tensor& bytes() const { return bytes_; }
  bool empty() const;

 private:
  Tensor bytes_;
  std::vector<Tensor> pieces_;
};

using ParcelPtr = std::shared_ptr<Parcel>;

// Keys that are sent, and queries of the forward, lie in their parcel from the beginning and are worked on there.
class TilePass {
 public:
  TilePass(Communicator& comm, std::string what, const AttentionTile& tile, const VarlenShape& shape, const Tensor& q,
           const Tensor& k, const Tensor& v);

 protected:
  const AttentionChunk& queries_of(int member) const { return tile_.q[static_cast<size_t>(member)]; }
  const AttentionChunk& keys_of(int member) const { return tile_.kv[static_cast<size_t>(member)]; }
  const AttentionChunk& own_queries() const { return queries_of(tile_.me); }
  const AttentionChunk& own_keys() const { return keys_of(tile_.me); }

  int64_t query_rows(int member) const { return queries_of(member).rows(); }
  ParcelPtr parcel(const Pieces& pieces) const { return std::make_shared<Parcel>(pieces, all_q_); }
  ParcelPtr keys_parcel(int member) const;
  // Sets k_ and v_.
  void pack_keys();
  void forget_packed() { packed_queries_ = packed_keys_ = nullptr; }
  Pending move(const char* part, int to, const Parcel& sent, int from, const Parcel& received);
  // The step's queries, keys: `got` becomes what arrives.
  Pending move_queries(const char* part, int step, const Pieces& pieces, ParcelPtr& got);
  Pending move_keys(int step, ParcelPtr& got);
  // Calls f(ranges) for every run of keys of which a member's queries see any.
  template <class F>
  void each_visible(int member, const AttentionChunk& keys, const F& f) const {
    int64_t k_at = 0;
    for (const AttentionChunk::Run& run : keys.runs) {
      const std::vector<AttentionRange> ranges = visible_ranges(tile_, queries_of(member), run, k_at, shape_);
      if (!ranges.empty()) f(ranges);
      k_at += run.rows;
    }
  }
  Tensor by_head(const Tensor& x) const;  // [rows, heads, head_dim]

  Communicator& comm_;
  std::string what_;
  const AttentionTile& tile_;
  VarlenShape shape_;
  Tensor all_q_, all_k_, all_v_;  // all rows of this rank
  Tensor k_, v_;                  // its chunk
  at::ScalarType work_;           // of sums
  ParcelPtr packed_queries_, packed_keys_;
};

}  // namespace loom::tiles
