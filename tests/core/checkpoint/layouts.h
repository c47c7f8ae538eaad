#pragma once
// Ranks under many layouts, each with its parts of the same tensors, whose values are a function of their place.
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/checkpoint/parts.h"
#include "tests/core/train/buffers.h"

namespace loom::test {

struct Layout {
  int world = 1, shard = 1;  // shard: ranks that hold a copy together
};

// Worlds 1, 2, 3, 4, 8, each with every rank a copy (dp), one copy, and copies of two ranks (HSDP).
inline std::vector<Layout> all_layouts() {
  return {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 4}, {4, 2}, {8, 1}, {8, 8}, {8, 2}};
}

// Different at every place of every tensor, and another series per `round`.
inline Tensor values_of(const std::string& name, const std::vector<int64_t>& shape, int64_t round) {
  int64_t from = round * 1'000'003;
  for (const char letter : name) from = (from * 31 + letter) % 9973;
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return (at::arange(n, at::kFloat) * 0.37 + static_cast<double>(from)).reshape(shape);
}

// A rank's buffers, two series of optimizer state, and a state that all ranks have.
class RankState {
 public:
  RankState(Communicator& comm, const Layout& on) : buffers_(at::kFloat, sharding_on(comm, on.shard)) {
    for (UnitBuffer* buffer : buffers_.all()) {
      buffer->master().zero_();
      moments_.push_back(at::zeros({2, buffer->numel()}, at::kFloat));
    }
    counter_ = at::zeros({}, at::kLong);
    leader_ = comm.rank() == 0;
  }

  std::vector<NamedTensor> tensors() {
    std::vector<NamedTensor> out;
    const std::vector<UnitBuffer*> all = buffers_.all();
    for (size_t i = 0; i < all.size(); ++i) {
      append_parts(*all[i], all[i]->master(), "", out);
      append_parts(*all[i], moments_[i][0], "optimizer.exp_avg.", out);
      append_parts(*all[i], moments_[i][1], "optimizer.exp_avg_sq.", out);
    }
    out.push_back({"backbone.counter", counter_, {}, {}, leader_});
    return out;
  }

  void fill(int64_t round) {
    for (const NamedTensor& tensor : tensors()) {
      if (holds(tensor)) tensor.tensor.copy_(wanted(tensor, round));
    }
  }

  // How many of this rank's tensors are not those of the round, to the bit.
  int64_t wrong(int64_t round) {
    int64_t count = 0;
    for (const NamedTensor& tensor : tensors())
      count += holds(tensor) && !at::equal(tensor.tensor, wanted(tensor, round)) ? 1 : 0;
    return count;
  }

 private:
  static Tensor wanted(const NamedTensor& tensor, int64_t round) {
    if (tensor.name == "backbone.counter") return at::full({}, round, at::kLong);
    Tensor out = values_of(tensor.name, tensor.box.size.empty() ? tensor.tensor.sizes().vec() : tensor.shape, round);
    for (int64_t d = 0; d < tensor.box.rank(); ++d) {
      const size_t i = static_cast<size_t>(d);
      out = out.narrow(d, tensor.box.offset[i], tensor.box.size[i]);
    }
    return out;
  }

  Buffers buffers_;
  std::vector<Tensor> moments_;
  Tensor counter_;
  bool leader_ = false;
};

// Of the tensors above, in bytes.
inline constexpr int64_t kStateBytes = 3 * 4 * (37 * 13 + 13 + 211 * 163 + 163 + 5 + 7 * 3) + 8;

}  // namespace loom::test
