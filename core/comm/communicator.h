#pragma once
// What ranks say to each other. One communicator per rank; every collective names itself (`what`: "backbone.blocks.3:
// weights"), so that a peer that is late, lost or elsewhere is reported by name. Collectives of a pair of ranks are
// matched in the order in which they are started, and their names are compared: two ranks that disagree fail at once
// with both names instead of exchanging wrong bytes. Sums are added in rank order, so all ranks get the same bits.
// Tensors are contiguous, and stay as they are until the result was waited for. One thread per rank calls; work of
// another thread takes a sibling. CommError carries everything that goes wrong.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/comm/traffic.h"
#include "core/mesh/rank_group.h"

namespace loom {

struct Message {
  int peer = 0;
  Tensor tensor;
};

// A collective under way. Its tensors must live until wait() returned; waiting twice is harmless.
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::function<void()> finish) : finish_(std::move(finish)) {}
  Pending(Pending&& other) noexcept : finish_(std::exchange(other.finish_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    finish_ = std::exchange(other.finish_, nullptr);
    return *this;
  }
  void wait() {
    if (finish_) std::exchange(finish_, nullptr)();
  }
  bool active() const { return static_cast<bool>(finish_); }

 private:
  std::function<void()> finish_;
};

class Communicator {
 public:
  Communicator(int rank, int world) : rank_(rank), world_(world) {}
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  // The same ranks with a queue of their own, for one other thread (`name`: "checkpoint"). All ranks call it together,
  // each from the thread that owns this communicator, which must outlive the sibling.
  virtual std::unique_ptr<Communicator> sibling(std::string_view name) = 0;

  // out [group size * n] becomes the members' `mine` [n] in group order. `mine` may be this rank's part of `out`.
  Pending all_gather(std::string_view what, const RankGroup& group, const Tensor& mine, const Tensor& out);
  // sum [n] += the members' sum of their in [group size * n], part of this rank; added when the result is waited for.
  Pending reduce_scatter_add(std::string_view what, const RankGroup& group, const Tensor& in, const Tensor& sum);
  // values become the sum over the group, in place.
  void all_reduce(std::string_view what, const RankGroup& group, const Tensor& values);
  // Point to point: at most one message per peer and direction; the sizes that arrive must be those expected. A message
  // to itself is not allowed.
  Pending exchange(std::string_view what, const std::vector<Message>& sends, const std::vector<Message>& receives);
  void barrier(std::string_view what, const RankGroup& group);
  // The root's bytes on every member.
  std::string broadcast(std::string_view what, const RankGroup& group, int root, const std::string& text);

  // Waiting longer than this is a CommError; 0 = for ever. A peer that failed is reported at once all the same.
  virtual void set_timeout(double seconds) = 0;
  virtual double timeout() const = 0;

  // This rank cannot go on, for a reason of its own: the others fail with these words instead of missing it.
  virtual void fail(const std::string& words);

  // Since the last reset. A call over a group of one counts as a call of no bytes.
  const std::map<CommKind, CommCount>& counts() const { return counts_; }
  int64_t bytes_sent() const;  // over all kinds
  // The same by axis and component, too.
  const Traffic& traffic() const { return traffic_; }
  void reset_counts();

 protected:
  // The one primitive of a transport: posts all sends and receives and returns. When the result was waited for, the
  // receives are filled and the sends may be changed.
  virtual Pending do_exchange(std::string_view what, const std::vector<Message>& sends,
                              const std::vector<Message>& receives) = 0;
  // Adds to counts() and traffic().
  virtual void count(CommKind kind, std::string_view what, int64_t calls, int64_t bytes);

 private:
  Pending post(CommKind kind, std::string_view what, const std::vector<Message>& sends,
               const std::vector<Message>& receives);
  void check_group(std::string_view what, const RankGroup& group) const;
  void check_messages(std::string_view what, const char* side, const std::vector<Message>& messages) const;
  // Parts of `in` [group size * n] on their way to their owners; what arrives is for Scatter::sum.
  struct Scatter;
  Scatter scatter_parts(CommKind kind, std::string_view what, const RankGroup& group, const Tensor& in);
  Pending gather_parts(CommKind kind, std::string_view what, const RankGroup& group, const Tensor& mine,
                       const Tensor& out);

  int rank_, world_;
  std::map<CommKind, CommCount> counts_;
  Traffic traffic_;
};

// A world of one rank: every collective is a copy or nothing. It keeps no state, counts included, so it belongs to the
// process and any thread may use it, and is its own kind of sibling.
Communicator& alone();

// Sets a timeout for a scope.
class ScopedTimeout {
 public:
  ScopedTimeout(Communicator& comm, double seconds) : comm_(comm), before_(comm.timeout()) {
    comm.set_timeout(seconds);
  }
  ~ScopedTimeout() { comm_.set_timeout(before_); }
  ScopedTimeout(const ScopedTimeout&) = delete;
  ScopedTimeout& operator=(const ScopedTimeout&) = delete;

 private:
  Communicator& comm_;
  double before_;
};

}  // namespace loom
