// Every collective on several worlds and sub-groups against a reference, with its exact bytes; and the checks of
// arguments.
#include "core/comm/communicator.h"

#include <atomic>
#include <thread>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"
#include "tests/core/comm/gloo_threads.h"
#include "tests/core/comm/values.h"

namespace loom {
namespace {

using test::count_of;
using test::message_of;
using test::same_bits;
using test::sum_of;
using test::values_of;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble};
constexpr int kWorlds[] = {1, 2, 3, 4, 7};
constexpr int kGlooWorlds[] = {2, 3, 4};

// The world, the even ranks and the others, and every rank by itself.
std::vector<RankGroup> groups_of(const Communicator& comm) {
  RankGroup same_parity;
  for (int r = comm.rank() % 2; r < comm.world(); r += 2) same_parity.push_back(r);
  return {world_group(comm.world()), same_parity, {comm.rank()}};
}

// Runs `body(comm, group, dtype)` for each of them in every world, over every transport; returns how often.
template <class Body>
int everywhere(Body body) {
  std::atomic<int> cases{0};
  const auto of_rank = [&](Communicator& comm) {
    for (const RankGroup& group : groups_of(comm)) {
      for (const at::ScalarType type : kTypes) {
        comm.reset_counts();
        body(comm, group, type);
        ++cases;
      }
    }
  };
  for (const int world : kWorlds) run_loopback(world, of_rank);
  for (const int world : kGlooWorlds) test::run_gloo(world, of_rank);
  return cases;
}

int64_t width(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

TEST(Communicator, AllGatherIsTheReferenceAndItsFormula) {
  const int cases = everywhere([](Communicator& comm, const RankGroup& group, at::ScalarType type) {
    const int64_t others = static_cast<int64_t>(group.size()) - 1;
    int64_t calls = 0, bytes = 0;
    for (const int64_t n : {0, 1, 5, 3000}) {
      std::vector<Tensor> expected;
      for (const int member : group) expected.push_back(values_of(1, member, n, type));
      const Tensor reference = at::cat(expected);
      const Tensor apart = at::full({others + 1, n}, 7, at::dtype(type));
      comm.all_gather("weights", group, values_of(1, comm.rank(), n, type), apart).wait();
      EXPECT_TRUE(same_bits(apart.view(-1), reference));
      // Its own part already lies in place, under a gradient-recording leaf.
      const Tensor in_place = at::full({(others + 1) * n}, 7, at::dtype(type));
      const Tensor mine = in_place.narrow(0, index_in(group, comm.rank()) * n, n);
      mine.copy_(values_of(1, comm.rank(), n, type));
      comm.all_gather("weights", group, mine, in_place).wait();
      EXPECT_TRUE(same_bits(in_place, reference));
      calls += 2;
      bytes += 2 * others * n * width(type);
    }
    EXPECT_EQ(count_of(comm, CommKind::all_gather).calls, calls);
    EXPECT_EQ(count_of(comm, CommKind::all_gather).bytes, bytes);
    EXPECT_EQ(comm.bytes_sent(), bytes);
  });
  EXPECT_EQ(cases, (1 + 2 + 3 + 4 + 7 + 2 + 3 + 4) * 3 * 2);
}

TEST(Communicator, ReduceScatterAddsInRankOrderToWhatIsThere) {
  everywhere([](Communicator& comm, const RankGroup& group, at::ScalarType type) {
    const int64_t size = static_cast<int64_t>(group.size());
    int64_t bytes = 0;
    for (const int64_t n : {0, 1, 5, 3000}) {
      const Tensor sum = values_of(9, comm.rank(), n, type);
      const Tensor in = values_of(2, comm.rank(), size * n, type), kept = in.clone();
      const Tensor total = sum_of(2, group, size * n, type).narrow(0, index_in(group, comm.rank()) * n, n);
      const Tensor reference = sum + total;
      comm.reduce_scatter_add("gradients", group, in, sum).wait();
      EXPECT_TRUE(same_bits(sum, reference));
      EXPECT_TRUE(same_bits(in, kept));
      bytes += (size - 1) * n * width(type);
    }
    EXPECT_EQ(count_of(comm, CommKind::reduce_scatter).calls, 4);
    EXPECT_EQ(count_of(comm, CommKind::reduce_scatter).bytes, bytes);
    EXPECT_EQ(comm.bytes_sent(), bytes);
  });
}

TEST(Communicator, AllReduceGivesEveryRankTheSameBits) {
  std::atomic<int> large{0};
  everywhere([&](Communicator& comm, const RankGroup& group, at::ScalarType type) {
    const int64_t size = static_cast<int64_t>(group.size()), w = width(type);
    int64_t bytes = 0;
    const int64_t border = 64 * 1024 / w;
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, border, border + 1, 3 * border + 5}) {
      const Tensor values = values_of(3, comm.rank(), n, type);
      comm.all_reduce("norm", group, values);
      EXPECT_TRUE(same_bits(values, sum_of(3, group, n, type))) << n;
      bytes += n <= border ? (size - 1) * n * w : 2 * (size - 1) * ((n + size - 1) / size) * w;
      large += n > border && size > 1 ? 1 : 0;
    }
    EXPECT_EQ(count_of(comm, CommKind::all_reduce).calls, 6);
    EXPECT_EQ(count_of(comm, CommKind::all_reduce).bytes, bytes);
    EXPECT_EQ(comm.bytes_sent(), bytes);
  });
  EXPECT_GT(large, 100);
}

TEST(Communicator, AllReduceOfCountsAndShapedValues) {
  run_loopback(3, [](Communicator& comm) {
    const Tensor counts = at::full({2, 2}, comm.rank() + 1, at::kLong);
    comm.all_reduce("counts", world_group(3), counts);
    EXPECT_TRUE(at::equal(counts, at::full({2, 2}, 6, at::kLong)));
  });
}

TEST(Communicator, BroadcastAndBarrier) {
  everywhere([](Communicator& comm, const RankGroup& group, at::ScalarType) {
    int64_t bytes = 0;
    for (const int root : group) {
      for (const std::string& text : {std::string(), std::string("one\0two", 7), std::string(5000, 'x')}) {
        const std::string heard = comm.broadcast("plan", group, root, comm.rank() == root ? text : "not the root's");
        EXPECT_EQ(heard, text);
        if (comm.rank() == root) bytes += static_cast<int64_t>((group.size() - 1) * (sizeof(int64_t) + text.size()));
      }
      comm.barrier("saved", group);
    }
    const int64_t size = static_cast<int64_t>(group.size());
    EXPECT_EQ(count_of(comm, CommKind::broadcast).calls, 3 * size);
    EXPECT_EQ(count_of(comm, CommKind::broadcast).bytes, bytes);
    EXPECT_EQ(count_of(comm, CommKind::barrier).calls, size);
    EXPECT_EQ(count_of(comm, CommKind::barrier).bytes, 0);
    EXPECT_EQ(comm.bytes_sent(), bytes);
  });
}

TEST(Communicator, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  run_loopback(5, {.delays = 4}, [&](Communicator& comm) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      comm.barrier("round", world_group(5));
      EXPECT_GE(came, 5 * round);
      comm.barrier("next round", world_group(5));
    }
  });
}

TEST(Communicator, ExchangeSendsDifferentSizesToEachPeer) {
  const auto body = [](Communicator& comm) {
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == comm.rank()) continue;
      // Rank a sends 10 a + b values to rank b, nothing from 1 to 2.
      const auto n = [](int a, int b) { return a == 1 && b == 2 ? 0 : 10 * a + b; };
      if (n(comm.rank(), peer) > 0) {
        sends.push_back({peer, values_of(5, comm.rank(), n(comm.rank(), peer), at::kFloat)});
      }
      if (n(peer, comm.rank()) > 0) receives.push_back({peer, at::empty({n(peer, comm.rank())}, at::kFloat)});
    }
    int64_t bytes = 0;
    for (const Message& send : sends) bytes += 4 * send.tensor.numel();
    Pending pending = comm.exchange("rows", sends, receives);
    EXPECT_TRUE(pending.active());
    pending.wait();
    EXPECT_FALSE(pending.active());
    for (const Message& send : sends) send.tensor.zero_();
    pending.wait();
    for (const Message& got : receives) {
      EXPECT_TRUE(same_bits(got.tensor, values_of(5, got.peer, got.tensor.numel(), at::kFloat)));
    }
    EXPECT_EQ(count_of(comm, CommKind::exchange).calls, 1);
    EXPECT_EQ(count_of(comm, CommKind::exchange).bytes, bytes);
    EXPECT_FALSE(comm.exchange("nothing", {}, {}).active());
  };
  run_loopback(4, body);
  test::run_gloo(4, body);
}

TEST(Communicator, ASiblingIsAQueueOfItsOwn) {
  const auto body = [](Communicator& comm) {
    const RankGroup everyone = world_group(comm.world());
    const auto second = comm.sibling("background"), third = comm.sibling("background");
    // What one queue has started does not stand in the way of another, whichever thread is first.
    std::thread background([&] {
      for (int i = 0; i < 50; ++i) {
        const Tensor values = values_of(11, comm.rank(), 300, at::kFloat);
        second->all_reduce("second", everyone, values);
        EXPECT_TRUE(same_bits(values, sum_of(11, everyone, 300, at::kFloat)));
      }
    });
    for (int i = 0; i < 50; ++i) {
      const Tensor values = values_of(12, comm.rank(), 500, at::kDouble);
      (i % 2 == 0 ? comm : *third).all_reduce("first", everyone, values);
      EXPECT_TRUE(same_bits(values, sum_of(12, everyone, 500, at::kDouble)));
    }
    background.join();
    EXPECT_EQ(count_of(*second, CommKind::all_reduce).calls, 50);
    EXPECT_EQ(count_of(comm, CommKind::all_reduce).calls, 25);
    EXPECT_EQ(third->rank(), comm.rank());
    comm.barrier("end of siblings", everyone);
  };
  run_loopback(3, {.delays = 5}, body);
  test::run_gloo(3, body);
}

TEST(Communicator, AloneCopiesAndKeepsNoState) {
  Communicator& comm = alone();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&comm] {
      for (int round = 0; round < 200; ++round) {
        const Tensor values = values_of(6, 0, 8, at::kFloat), out = at::zeros({8}), sum = at::ones({8});
        comm.all_gather("weights", {0}, values, out).wait();
        EXPECT_TRUE(same_bits(out, values));
        comm.reduce_scatter_add("gradients", {0}, values, sum).wait();
        EXPECT_TRUE(same_bits(sum, at::ones({8}) + values));
        comm.all_reduce("norm", {0}, out);
        EXPECT_TRUE(same_bits(out, values));
        comm.barrier("end", {0});
        EXPECT_EQ(comm.broadcast("plan", {0}, 0, "text"), "text");
        EXPECT_FALSE(comm.exchange("rows", {}, {}).active());
        const ScopedTimeout scope(comm, 3);
        comm.reset_counts();
        EXPECT_EQ(comm.bytes_sent(), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(comm.counts().empty());
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.world(), 1);
}

TEST(Communicator, WritesIntoALeafThatRecordsGradients) {
  run_loopback(2, [](Communicator& comm) {
    const Tensor out = at::zeros({4}).requires_grad_(true), sum = at::zeros({2}).requires_grad_(true);
    comm.all_gather("weights", {0, 1}, at::ones({2}), out).wait();
    comm.reduce_scatter_add("gradients", {0, 1}, at::ones({4}), sum).wait();
    EXPECT_EQ(out.sum().item<float>(), 4);
    EXPECT_EQ(sum.sum().item<float>(), 4);
    EXPECT_TRUE(out.is_leaf());
    EXPECT_FALSE(sum.grad_fn());
  });
}

// `body` in a world of two must be refused with a text that names the collective and contains `part`.
template <class Body>
void refused(const std::string& part, Body body) {
  const std::string text = message_of<InternalError>([&] { run_loopback(2, body); });
  EXPECT_NE(text.find("'name'"), std::string::npos) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Communicator, ArgumentsAreChecked) {
  const Tensor two = at::zeros({2}), four = at::zeros({4});
  refused("not contiguous", [](Communicator& c) { c.all_reduce("name", {0, 1}, at::zeros({2, 2}).t()); });
  refused("undefined", [](Communicator& c) { c.all_reduce("name", {0, 1}, Tensor()); });
  refused("out has 2 elements, mine 2", [&](Communicator& c) { c.all_gather("name", {0, 1}, two, two).wait(); });
  refused("in has 4 elements, sum 4", [&](Communicator& c) { c.reduce_scatter_add("name", {0, 1}, four, four).wait(); });
  refused("out is Float, mine Double", [&](Communicator& c) {
    c.all_gather("name", {0, 1}, two.to(at::kDouble), four).wait();
  });
  refused("not ascending", [](Communicator& c) { c.barrier("name", {1, 0}); });
  refused("not ascending", [](Communicator& c) { c.barrier("name", {0, 0, 1}); });
  refused("no members", [](Communicator& c) { c.barrier("name", {}); });
  refused("leaves the world of 2", [](Communicator& c) { c.barrier("name", {0, 1, 2}); });
  refused("is no member of the group [", [](Communicator& c) { c.barrier("name", {1 - c.rank()}); });
  refused("the root, rank 3, is no member", [](Communicator& c) { c.broadcast("name", {0, 1}, 3, ""); });
  refused("sends to itself", [&](Communicator& c) { c.exchange("name", {{c.rank(), two}}, {}); });
  refused("receives from rank 2 of 2", [&](Communicator& c) { c.exchange("name", {}, {{2, two}}); });
  refused("twice", [&](Communicator& c) { c.exchange("name", {{1 - c.rank(), two}, {1 - c.rank(), two}}, {}); });
}

TEST(Communicator, KindsHaveNames) {
  EXPECT_STREQ(comm_kind_name(CommKind::all_gather), "all_gather");
  EXPECT_STREQ(comm_kind_name(CommKind::broadcast), "broadcast");
}

}  // namespace
}  // namespace loom
