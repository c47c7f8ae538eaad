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

// The rows of a chunk, one after the other; a copy when it has several runs.
Tensor rows_of(const Tensor& x, const AttentionChunk& chunk);
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

class TilePass {
 public:
  TilePass(Communicator& comm, std::string what, const AttentionTile& tile, const VarlenShape& shape, const Tensor& q,
           const Tensor& k, const Tensor& v);

 protected:
  const AttentionChunk& queries_of(int member) const { return tile_.q[static_cast<size_t>(member)]; }
  const AttentionChunk& keys_of(int member) const { return tile_.kv[static_cast<size_t>(member)]; }
  const AttentionChunk& own_queries() const { return queries_of(tile_.me); }
  const AttentionChunk& own_keys() const { return keys_of(tile_.me); }

  ParcelPtr parcel(const Pieces& pieces) const { return std::make_shared<Parcel>(pieces, q_); }
  ParcelPtr keys_parcel(int64_t rows) const;
  ParcelPtr packed_keys() const;
  Pending move(const char* part, int to, const Parcel& sent, int from, const Parcel& received);
  Tensor by_head(const Tensor& x) const;  // [rows, heads, head_dim]

  Communicator& comm_;
  std::string what_;
  const AttentionTile& tile_;
  VarlenShape shape_;
  Tensor q_, k_, v_;     // this rank's chunk
  at::ScalarType work_;  // of sums
};

}  // namespace loom::tiles
