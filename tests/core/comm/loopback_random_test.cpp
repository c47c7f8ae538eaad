// Random sequences of collectives over random sub-groups, with several under way at a time, waited for in random order:
// no hang, no mixed-up message, right numbers. Every rank derives the whole sequence from the seed.
#include <atomic>
#include <string>
#include <utility>

#include "tests/core/comm/values.h"

namespace loom {
namespace {

using test::same_bits;
using test::sum_of;
using test::values_of;

class Draw {
 public:
  explicit Draw(uint64_t seed, uint64_t site = 0) : random_(RandomKey{.seed = seed, .site = 1000 + site}) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(random_.below(static_cast<uint64_t>(bound), at_++)); }

 private:
  Philox random_;
  uint64_t at_ = 0;
};

struct Totals {
  std::atomic<int64_t> collectives{0}, overlapped{0}, messages{0}, partial{0};
};

// A collective that was started, with what it must have produced.
struct Open {
  Pending pending;
  std::vector<std::pair<Tensor, Tensor>> results;  // received, expected
};

void close(Open& open, uint64_t seed) {
  open.pending.wait();
  for (const auto& [received, expected] : open.results) EXPECT_TRUE(same_bits(received, expected)) << "seed " << seed;
}

Open start_all_gather(Communicator& comm, const std::string& what, const RankGroup& group, uint64_t key, int64_t n,
                      at::ScalarType type) {
  std::vector<Tensor> expected;
  for (const int member : group) expected.push_back(values_of(key, member, n, type));
  const Tensor out = at::zeros({n * static_cast<int64_t>(group.size())}, at::dtype(type));
  return {comm.all_gather(what, group, values_of(key, comm.rank(), n, type), out), {{out, at::cat(expected)}}};
}

Open start_exchange(Communicator& comm, const std::string& what, const RankGroup& group, uint64_t key, Draw& draw,
                    Totals& totals) {
  Open open;
  std::vector<Message> sends, receives;
  for (const int from : group) {
    for (const int to : group) {
      const int64_t n = draw.below(6) - 2;  // often no message; also empty ones
      if (from == to || n < 0) continue;
      const Tensor values = values_of(key + static_cast<uint64_t>(to), from, n, at::kFloat);
      if (from == comm.rank()) sends.push_back({to, values});
      if (to != comm.rank()) continue;
      receives.push_back({from, at::full({n}, -5, at::kFloat)});
      open.results.push_back({receives.back().tensor, values});
      ++totals.messages;
    }
  }
  open.pending = comm.exchange(what, sends, receives);
  return open;
}

void run_sequence(Communicator& comm, uint64_t seed, Totals& totals) {
  Draw draw(seed), own(seed, static_cast<uint64_t>(comm.rank()) + 1);
  std::vector<Open> open;
  const int64_t steps = 4 + draw.below(12);
  for (int64_t step = 0; step < steps; ++step) {
    RankGroup group;
    for (int rank = 0; rank < comm.world(); ++rank) {
      if (draw.below(3) > 0) group.push_back(rank);
    }
    if (group.empty()) group.push_back(static_cast<int>(draw.below(comm.world())));
    const int64_t kind = draw.below(6), n = draw.below(40) == 0 ? 9000 : draw.below(30);
    const uint64_t key = seed * 1000 + static_cast<uint64_t>(step) * 10;
    const at::ScalarType type = draw.below(2) == 0 ? at::kFloat : at::kDouble;
    const int root = group[static_cast<size_t>(draw.below(static_cast<int64_t>(group.size())))];
    Draw pattern(key, 77);
    const int index = index_in(group, comm.rank());
    if (index < 0) continue;
    const std::string what = "step " + std::to_string(step);
    const int64_t size = static_cast<int64_t>(group.size());
    ++totals.collectives;
    if (size < comm.world()) ++totals.partial;
    if (!open.empty()) ++totals.overlapped;
    if (kind == 0) {
      open.push_back(start_all_gather(comm, what, group, key, n, type));
    } else if (kind == 1) {
      open.push_back(start_exchange(comm, what, group, key, pattern, totals));
    } else if (kind == 2) {
      const Tensor sum = at::zeros({n}, at::dtype(type));
      comm.reduce_scatter_add(what, group, values_of(key, comm.rank(), n * size, type), sum).wait();
      EXPECT_TRUE(at::equal(sum, sum_of(key, group, n * size, type).narrow(0, index * n, n))) << "seed " << seed;
    } else if (kind == 3) {
      const Tensor values = values_of(key, comm.rank(), n, type);
      comm.all_reduce(what, group, values);
      EXPECT_TRUE(same_bits(values, sum_of(key, group, n, type))) << "seed " << seed;
    } else if (kind == 4) {
      const std::string text(static_cast<size_t>(n), static_cast<char>('a' + root));
      EXPECT_EQ(comm.broadcast(what, group, root, comm.rank() == root ? text : ""), text) << "seed " << seed;
    } else {
      comm.barrier(what, group);
    }
    while (!open.empty() && own.below(2) == 0) {  // each rank in an order of its own
      const size_t which = static_cast<size_t>(own.below(static_cast<int64_t>(open.size())));
      close(open[which], seed);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (Open& last : open) close(last, seed);
}

TEST(Loopback, FiveHundredRandomSequences) {
  Totals totals;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Draw draw(seed, 99);
    const int world = 2 + static_cast<int>(draw.below(5));
    const uint64_t delays = draw.below(5) == 0 ? seed : 0;
    run_loopback(world, {.delays = delays}, [&](Communicator& comm) { run_sequence(comm, seed, totals); });
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(totals.collectives, 8000);
  EXPECT_GT(totals.partial, 4000);
  EXPECT_GT(totals.overlapped, 2000);
  EXPECT_GT(totals.messages, 1000);
}

}  // namespace
}  // namespace loom
