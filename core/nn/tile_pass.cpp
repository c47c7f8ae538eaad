#include "core/nn/tile_pass.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace loom::tiles {
namespace {

int64_t size_of(const Pieces::value_type& piece) {
  return c10::multiply_integers(piece.first) * static_cast<int64_t>(c10::elementSize(piece.second));
}

// Calls f(rows of x, rows of `rows`) for every run.
template <class F>
void each_run(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows, const F& f) {
  int64_t at = 0;
  for (const AttentionChunk::Run& run : chunk.runs) {
    f(x.narrow(0, run.local_row, run.rows), rows.narrow(0, at, run.rows));
    at += run.rows;
  }
}

}  // namespace

int Schedule::add(std::function<Pending()> start, std::function<void()> finish, int after) {
  stages_.push_back({std::move(start), std::move(finish), after});
  return static_cast<int>(stages_.size()) - 1;
}

int Schedule::add(std::function<void()> work) {
  return add([] { return Pending(); }, std::move(work));
}

void Schedule::run() {
  const size_t count = stages_.size();
  Pending next;
  size_t started = 0;
  for (size_t i = 0; i < count; ++i) {
    if (started == i) next = stages_[started++].start();
    Pending now = std::move(next);
    if (i + 1 < count && stages_[i + 1].after < static_cast<int>(i)) next = stages_[started++].start();
    now.wait();
    stages_[i].finish();
    stages_[i] = {};  // what it held is not needed any more
  }
}

Tensor rows_of(const Tensor& x, const AttentionChunk& chunk) {
  if (chunk.runs.empty()) return x.narrow(0, 0, 0);
  std::vector<Tensor> parts;
  for (const AttentionChunk::Run& run : chunk.runs) parts.push_back(x.narrow(0, run.local_row, run.rows));
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

void read_rows(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows) {
  each_run(x, chunk, rows, [](const Tensor& from, const Tensor& to) { to.copy_(from); });
}

void write_rows(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows) {
  each_run(x, chunk, rows, [](const Tensor& to, const Tensor& from) { to.copy_(from); });
}

void add_rows(const Tensor& x, const AttentionChunk& chunk, const Tensor& rows) {
  each_run(x, chunk, rows, [](const Tensor& to, const Tensor& from) { to.add_(from); });
}

Parcel::Parcel(const Pieces& pieces, const Tensor& like) {
  std::vector<int64_t> begins{0};
  for (const auto& piece : pieces) begins.push_back(begins.back() + (size_of(piece) + 7) / 8 * 8);
  bytes_ = at::empty({begins.back()}, like.options().dtype(at::kByte));
  for (size_t i = 0; i < pieces.size(); ++i)
    pieces_.push_back(bytes_.narrow(0, begins[i], size_of(pieces[i])).view(pieces[i].second).view(pieces[i].first));
}

bool Parcel::empty() const { return bytes_.numel() == 0; }

TilePass::TilePass(Communicator& comm, std::string what, const AttentionTile& tile, const VarlenShape& shape,
                   const Tensor& q, const Tensor& k, const Tensor& v)
    : comm_(comm),
      what_(std::move(what)),
      tile_(tile),
      shape_(shape),
      all_q_(q),
      all_k_(k),
      all_v_(v),
      work_(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) {}

ParcelPtr TilePass::keys_parcel(int member) const {
  const std::vector<int64_t> size{keys_of(member).rows(), shape_.kv_heads * shape_.head_dim};
  return parcel({{size, all_k_.scalar_type()}, {size, all_k_.scalar_type()}});
}

void TilePass::pack_keys() {
  if (tile_.keys() == 1) {
    k_ = rows_of(all_k_, own_keys());
    v_ = rows_of(all_v_, own_keys());
    return;
  }
  packed_keys_ = keys_parcel(tile_.me);
  k_ = (*packed_keys_)[0];
  v_ = (*packed_keys_)[1];
  read_rows(all_k_, own_keys(), k_);
  read_rows(all_v_, own_keys(), v_);
}

Pending TilePass::move(const char* part, int to, const Parcel& sent, int from, const Parcel& received) {
  std::vector<Message> sends, receives;
  if (!sent.empty()) sends.push_back({tile_.ranks[static_cast<size_t>(to)], sent.bytes()});
  if (!received.empty()) receives.push_back({tile_.ranks[static_cast<size_t>(from)], received.bytes()});
  if (sends.empty() && receives.empty()) return {};
  return comm_.exchange(what_ + part, sends, receives);
}

Pending TilePass::move_queries(const char* part, int step, const Pieces& pieces, ParcelPtr& got) {
  got = parcel(pieces);
  return move(part, tile_.queries_to(step), *packed_queries_, tile_.queries_from(step), *got);
}

Pending TilePass::move_keys(int step, ParcelPtr& got) {
  got = keys_parcel(tile_.keys_from(step));
  return move(" keys and values", tile_.keys_to(step), *packed_keys_, tile_.keys_from(step), *got);
}

Tensor TilePass::by_head(const Tensor& x) const { return x.view({x.size(0), shape_.heads, shape_.head_dim}); }

}  // namespace loom::tiles
