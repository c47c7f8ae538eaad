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
      q_(rows_of(q, own_queries())),
      k_(rows_of(k, own_keys())),
      v_(rows_of(v, own_keys())),
      work_(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) {}

ParcelPtr TilePass::keys_parcel(int64_t rows) const {
  const std::vector<int64_t> size{rows, shape_.kv_heads * shape_.head_dim};
  return parcel({{size, k_.scalar_type()}, {size, k_.scalar_type()}});
}

ParcelPtr TilePass::packed_keys() const {
  ParcelPtr out = keys_parcel(k_.size(0));
  (*out)[0].copy_(k_);
  (*out)[1].copy_(v_);
  return out;
}

Pending TilePass::move(const char* part, int to, const Parcel& sent, int from, const Parcel& received) {
  std::vector<Message> sends, receives;
  if (!sent.empty()) sends.push_back({tile_.ranks[static_cast<size_t>(to)], sent.bytes()});
  if (!received.empty()) receives.push_back({tile_.ranks[static_cast<size_t>(from)], received.bytes()});
  if (sends.empty() && receives.empty()) return {};
  return comm_.exchange(what_ + part, sends, receives);
}

Tensor TilePass::by_head(const Tensor& x) const { return x.view({x.size(0), shape_.heads, shape_.head_dim}); }

}  // namespace loom::tiles
