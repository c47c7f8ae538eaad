// Collectives composed over the one primitive of a transport: every member writes to every other member. That is the
// published count of bytes for all-gather and reduce-scatter, and it leaves the sum to this rank, which adds in rank
// order: equal bits on all ranks, whatever arrives first.
#include "core/comm/communicator.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {
namespace {

constexpr int64_t kSmallBytes = 64 * 1024;  // all-reduce up to here: one round, every rank adds everything

int64_t bytes_of(const std::vector<Message>& messages) {
  int64_t bytes = 0;
  for (const Message& message : messages) bytes += message.tensor.numel() * message.tensor.element_size();
  return bytes;
}

std::string text_of(const RankGroup& group) {
  std::string out = "[";
  for (size_t i = 0; i < group.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(group[i]);
  return out + "]";
}

// Slice `index` of `count` equal ones; a view.
Tensor part_of(const Tensor& flat, size_t index, size_t count) {
  const int64_t n = flat.numel() / static_cast<int64_t>(count);
  return flat.narrow(0, static_cast<int64_t>(index) * n, n);
}

void check_tensor(std::string_view what, const char* name, const Tensor& tensor) {
  LOOM_CHECK(tensor.defined(), "'", what, "': ", name, " is undefined");
  LOOM_CHECK(tensor.is_contiguous(), "'", what, "': ", name, " is not contiguous");
}

// `many` holds one part of the size of `one` per member, in the same type.
void check_parts(std::string_view what, const char* many_name, const Tensor& many, const char* one_name,
                 const Tensor& one, const RankGroup& group) {
  check_tensor(what, many_name, many);
  check_tensor(what, one_name, one);
  LOOM_CHECK(many.numel() == one.numel() * static_cast<int64_t>(group.size()), "'", what, "': ", many_name, " has ",
             many.numel(), " elements, ", one_name, " ", one.numel(), ", the group ", group.size(), " ranks");
  LOOM_CHECK(many.scalar_type() == one.scalar_type(), "'", what, "': ", many_name, " is ", many.scalar_type(), ", ",
             one_name, " ", one.scalar_type());
}

// Tells profilers and clocks, if there are any.
class Recorded {
 public:
  explicit Recorded(std::string_view what) : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) record_.before(concat("loom::comm ", what));
  }

 private:
  at::RecordFunction record_;
};

// A world of one.
class Alone final : public Communicator {
 public:
  Alone() : Communicator(0, 1) {}
  std::unique_ptr<Communicator> sibling(std::string_view) override { return std::make_unique<Alone>(); }
  void set_timeout(double) override {}
  double timeout() const override { return 0; }

 protected:
  Pending do_exchange(std::string_view, const std::vector<Message>&, const std::vector<Message>&) override {
    return {};  // whoever calls has checked that there is nobody to talk to
  }
  void count(CommKind, std::string_view, int64_t, int64_t) override {}
};

}  // namespace

Communicator::~Communicator() = default;

void Communicator::fail(const std::string&) {}

int64_t Communicator::bytes_sent() const {
  int64_t bytes = 0;
  for (const auto& [kind, count] : counts_) bytes += count.bytes;
  return bytes;
}

void Communicator::reset_counts() {
  if (counts_.empty()) return;
  counts_.clear();
  traffic_.clear();
}

void Communicator::count(CommKind kind, std::string_view what, int64_t calls, int64_t bytes) {
  for (CommCount* entry : {&counts_[kind], &traffic_[site_of(kind, what)]}) {
    entry->calls += calls;
    entry->bytes += bytes;
  }
}

Pending Communicator::post(CommKind kind, std::string_view what, const std::vector<Message>& sends,
                           const std::vector<Message>& receives) {
  count(kind, what, 0, bytes_of(sends));
  if (sends.empty() && receives.empty()) return {};
  const Recorded record(what);
  auto posted = std::make_shared<Pending>(do_exchange(what, sends, receives));
  if (!posted->active()) return {};
  return Pending([posted, name = std::string(what)] {
    const Recorded wait(name);
    posted->wait();
  });
}

void Communicator::check_group(std::string_view what, const RankGroup& group) const {
  LOOM_CHECK(!group.empty(), "'", what, "': the group has no members");
  for (size_t i = 1; i < group.size(); ++i) {
    LOOM_CHECK(group[i - 1] < group[i], "'", what, "': the group ", text_of(group), " is not ascending");
  }
  LOOM_CHECK(group.front() >= 0 && group.back() < world_, "'", what, "': the group ", text_of(group),
             " leaves the world of ", world_);
  LOOM_CHECK(index_in(group, rank_) >= 0, "'", what, "': rank ", rank_, " is no member of the group ", text_of(group));
}

void Communicator::check_messages(std::string_view what, const char* side, const std::vector<Message>& messages) const {
  std::vector<bool> seen(static_cast<size_t>(world_), false);
  for (const Message& message : messages) {
    LOOM_CHECK(message.peer >= 0 && message.peer < world_, "'", what, "': rank ", rank_, " ", side, " rank ",
               message.peer, " of ", world_);
    LOOM_CHECK(message.peer != rank_, "'", what, "': rank ", rank_, " ", side, " itself");
    LOOM_CHECK(!seen[static_cast<size_t>(message.peer)], "'", what, "': rank ", rank_, " ", side, " rank ",
               message.peer, " twice");
    seen[static_cast<size_t>(message.peer)] = true;
    check_tensor(what, side, message.tensor);
  }
}

Pending Communicator::gather_parts(CommKind kind, std::string_view what, const RankGroup& group, const Tensor& mine,
                                   const Tensor& out) {
  const c10::NoGradGuard no_grad;
  const Tensor flat = out.view(-1), own = mine.view(-1);
  std::vector<Message> sends, receives;
  for (size_t i = 0; i < group.size(); ++i) {
    const Tensor slice = part_of(flat, i, group.size());
    if (group[i] != rank_) {
      sends.push_back({group[i], own});
      receives.push_back({group[i], slice});
    } else if (slice.const_data_ptr() != own.const_data_ptr()) {
      slice.copy_(own);
    }
  }
  return post(kind, what, sends, receives);
}

struct Communicator::Scatter {
  std::vector<Tensor> parts;  // of this rank's slice, by member; its own is a view of the input
  size_t own = 0;
  Pending pending;

  // The members' sum, a fresh tensor.
  Tensor sum() {
    pending.wait();
    Tensor total = own == 0 ? parts[0].clone() : parts[0];
    for (size_t i = 1; i < parts.size(); ++i) total.add_(parts[i]);
    return total;
  }
};

Communicator::Scatter Communicator::scatter_parts(CommKind kind, std::string_view what, const RankGroup& group,
                                                  const Tensor& in) {
  const Tensor flat = in.view(-1);
  const int64_t n = flat.numel() / static_cast<int64_t>(group.size());
  Scatter out;
  out.own = static_cast<size_t>(index_in(group, rank_));
  std::vector<Message> sends, receives;
  for (size_t i = 0; i < group.size(); ++i) {
    out.parts.push_back(i == out.own ? part_of(flat, i, group.size()) : at::empty({n}, flat.options()));
    if (i == out.own) continue;
    sends.push_back({group[i], part_of(flat, i, group.size())});
    receives.push_back({group[i], out.parts[i]});
  }
  out.pending = post(kind, what, sends, receives);
  return out;
}

Pending Communicator::all_gather(std::string_view what, const RankGroup& group, const Tensor& mine, const Tensor& out) {
  check_group(what, group);
  check_parts(what, "out", out, "mine", mine, group);
  count(CommKind::all_gather, what, 1, 0);
  return gather_parts(CommKind::all_gather, what, group, mine, out);
}

Pending Communicator::reduce_scatter_add(std::string_view what, const RankGroup& group, const Tensor& in,
                                         const Tensor& sum) {
  check_group(what, group);
  check_parts(what, "in", in, "sum", sum, group);
  const c10::NoGradGuard no_grad;
  count(CommKind::reduce_scatter, what, 1, 0);
  auto parts = std::make_shared<Scatter>(scatter_parts(CommKind::reduce_scatter, what, group, in));
  return Pending([parts, to = sum.view(-1), size = group.size()] {
    const c10::NoGradGuard none;
    const Tensor total = parts->sum();
    if (fault(Fault::averaged_gradients)) total.div_(static_cast<double>(size));
    to.add_(total);
  });
}

void Communicator::all_reduce(std::string_view what, const RankGroup& group, const Tensor& values) {
  check_group(what, group);
  check_tensor(what, "values", values);
  const c10::NoGradGuard no_grad;
  count(CommKind::all_reduce, what, 1, 0);
  if (group.size() == 1) return;
  const Tensor flat = values.view(-1);
  const int64_t size = static_cast<int64_t>(group.size()), n = flat.numel();
  if (n * flat.element_size() <= kSmallBytes) {
    const Tensor all = at::empty({size, n}, flat.options());
    gather_parts(CommKind::all_reduce, what, group, flat, all).wait();
    flat.copy_(all[0]);
    for (int64_t i = 1; i < size; ++i) flat.add_(all[i]);
    return;
  }
  const int64_t part = (n + size - 1) / size;
  Tensor padded = flat;
  if (part * size != n) {
    padded = at::zeros({part * size}, flat.options());
    padded.narrow(0, 0, n).copy_(flat);
  }
  const Tensor total = scatter_parts(CommKind::all_reduce, what, group, padded).sum();
  gather_parts(CommKind::all_reduce, what, group, total, padded).wait();
  if (padded.const_data_ptr() != flat.const_data_ptr()) flat.copy_(padded.narrow(0, 0, n));
}

Pending Communicator::exchange(std::string_view what, const std::vector<Message>& sends,
                               const std::vector<Message>& receives) {
  check_messages(what, "sends to", sends);
  check_messages(what, "receives from", receives);
  count(CommKind::exchange, what, 1, 0);
  return post(CommKind::exchange, what, sends, receives);
}

void Communicator::barrier(std::string_view what, const RankGroup& group) {
  check_group(what, group);
  count(CommKind::barrier, what, 1, 0);
  std::vector<Message> sends;
  for (const int member : group) {
    if (member != rank_) sends.push_back({member, at::empty({0}, at::kByte)});
  }
  post(CommKind::barrier, what, sends, sends).wait();
}

std::string Communicator::broadcast(std::string_view what, const RankGroup& group, int root, const std::string& text) {
  check_group(what, group);
  LOOM_CHECK(index_in(group, root) >= 0, "'", what, "': the root, rank ", root, ", is no member of the group ",
             text_of(group));
  count(CommKind::broadcast, what, 1, 0);
  const auto from_root = [&](const Tensor& tensor) {
    std::vector<Message> sends, receives;
    if (rank_ != root) receives.push_back({root, tensor});
    for (const int member : group) {
      if (rank_ == root && member != root) sends.push_back({member, tensor});
    }
    post(CommKind::broadcast, what, sends, receives).wait();
  };
  Tensor size = at::empty({1}, at::kLong);
  *size.data_ptr<int64_t>() = static_cast<int64_t>(text.size());
  from_root(size);
  const Tensor bytes = at::empty({*size.data_ptr<int64_t>()}, at::kByte);
  char* data = static_cast<char*>(bytes.data_ptr());
  if (rank_ == root) std::copy(text.begin(), text.end(), data);
  from_root(bytes);
  return bytes.numel() > 0 ? std::string(data, static_cast<size_t>(bytes.numel())) : std::string();
}

Communicator& alone() {
  static Alone one;
  return one;
}

}  // namespace loom
