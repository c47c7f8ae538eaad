// What goes wrong between ranks, and how it is told: every case would hang with a transport that only waits.
#include "core/comm/loopback.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"
#include "tests/core/comm/values.h"

namespace loom {
namespace {

using test::message_of;
using test::same_bits;
using test::values_of;

constexpr LoopbackOptions kForEver{.timeout = 0};   // where only a wake-up can end the wait
constexpr LoopbackOptions kPatient{.timeout = 60};  // where the text would show that it was the timeout

// Words of the CommError that each rank's body ended with; rethrown, so that the world sees it.
class Heard {
 public:
  template <class Body>
  void listen(Communicator& comm, Body body) {
    try {
      body();
    } catch (const CommError& error) {
      const std::lock_guard<std::mutex> guard(mutex_);
      words_[comm.rank()] = error.what();
      throw;
    }
  }
  std::string of(int rank) { return words_[rank]; }

 private:
  std::mutex mutex_;
  std::map<int, std::string> words_;
};

void send(Communicator& comm, const char* what, int to) { comm.exchange(what, {{to, at::zeros({2})}}, {}).wait(); }
void receive(Communicator& comm, const char* what, int from) {
  comm.exchange(what, {}, {{from, at::zeros({2})}}).wait();
}

TEST(Loopback, RanksRunAsThreadsWithTheirOwnThreadCount) {
  std::atomic<int> sum{0};
  const int before = at::get_num_threads();
  run_loopback(5, {.threads = before + 1}, [&](Communicator& comm) {
    EXPECT_EQ(comm.world(), 5);
    EXPECT_EQ(at::get_num_threads(), before + 1);
    sum += 1 << comm.rank();
  });
  EXPECT_EQ(sum, 31);
  EXPECT_EQ(at::get_num_threads(), before);
  int later = 0;
  std::thread([&later] { later = at::get_num_threads(); }).join();
  EXPECT_EQ(later, before);
}

TEST(Loopback, WaitsMayComeInAnotherOrderThanStarts) {
  for (const uint64_t delays : {0, 5}) {
    run_loopback(4, {.delays = delays}, [](Communicator& comm) {
      constexpr int kMany = 8;
      const RankGroup all = world_group(4);
      std::vector<Tensor> outs;
      std::vector<Pending> pending;
      for (int i = 0; i < kMany; ++i) {
        outs.push_back(at::zeros({4 * (i + 1)}));
        pending.push_back(comm.all_gather("weights " + std::to_string(i), all,
                                          values_of(static_cast<uint64_t>(i), comm.rank(), i + 1, at::kFloat),
                                          outs.back()));
      }
      for (int i = 0; i < kMany; ++i) {  // another order on every rank: 3 and 5 have no common divisor with 8
        pending[static_cast<size_t>((i * (comm.rank() % 2 == 0 ? 3 : 5) + comm.rank()) % kMany)].wait();
      }
      for (int i = 0; i < kMany; ++i) {
        for (int member = 0; member < 4; ++member) {
          EXPECT_TRUE(same_bits(outs[static_cast<size_t>(i)].narrow(0, member * (i + 1), i + 1),
                                values_of(static_cast<uint64_t>(i), member, i + 1, at::kFloat)));
        }
      }
    });
  }
}

TEST(Loopback, DisagreementIsNamedWithBothNames) {
  Heard heard;
  const std::string text = message_of<CommError>([&] {
    run_loopback(3, kPatient, [&](Communicator& comm) {
      heard.listen(comm, [&] {
        if (comm.rank() == 0) receive(comm, "block 3: weights", 1);
        if (comm.rank() == 1) send(comm, "block 4: weights", 0);
        if (comm.rank() != 0) receive(comm, "what never comes", 0);
      });
    });
  });
  const std::string expected =
      "rank 0 is in 'block 3: weights', rank 1 sent 'block 4: weights': the ranks disagree about what comes next";
  EXPECT_EQ(text, expected);
  EXPECT_EQ(heard.of(0), expected);
  EXPECT_EQ(heard.of(1), "rank 0 failed: " + expected);
  EXPECT_EQ(heard.of(2), "rank 0 failed: " + expected);
}

TEST(Loopback, DifferentSizesAndTypesAreNamed) {
  const auto mismatch = [](const Tensor& sent, const Tensor& expected) {
    return message_of<CommError>([&] {
      run_loopback(2, kForEver, [&](Communicator& comm) {
        if (comm.rank() == 0) comm.exchange("rows", {{1, sent}}, {}).wait();
        if (comm.rank() == 1) comm.exchange("rows", {}, {{0, expected}}).wait();
      });
    });
  };
  EXPECT_EQ(mismatch(at::zeros({3}), at::zeros({2})),
            "in 'rows' rank 1 expects 2 values of type Float, rank 0 sent 3 of type Float: the ranks disagree about "
            "size or type");
  EXPECT_EQ(mismatch(at::zeros({2}, at::kDouble), at::zeros({2})),
            "in 'rows' rank 1 expects 2 values of type Float, rank 0 sent 2 of type Double: the ranks disagree about "
            "size or type");
}

TEST(Loopback, ATimeoutFollowsTheChainToTheOneThatIsBusy) {
  Heard heard;
  std::promise<void> gave_up;
  std::shared_future<void> until = gave_up.get_future().share();
  const std::string text = message_of<CommError>([&] {
    run_loopback(3, kForEver, [&](Communicator& comm) {
      heard.listen(comm, [&] {
        if (comm.rank() == 0) {
          receive(comm, "go", 1);
          const ScopedTimeout scope(comm, 0.2);
          EXPECT_EQ(comm.timeout(), 0.2);
          try {
            receive(comm, "head: weights", 1);
          } catch (const CommError&) {
            gave_up.set_value();
            throw;
          }
        }
        if (comm.rank() == 1) {
          send(comm, "go", 0);
          receive(comm, "embed: weights", 2);
        }
        if (comm.rank() == 2) until.wait();  // busy until then
      });
    });
  });
  EXPECT_EQ(text,
            "rank 0 waits for rank 1 in 'head: weights' since 0.2 s; rank 1 waits for rank 2 in 'embed: weights'; "
            "rank 2 runs");
  EXPECT_EQ(heard.of(0), text);
  EXPECT_EQ(heard.of(1), "rank 0 failed: " + text);
}

TEST(Loopback, ACircleOfWaitsIsAnErrorAtOnce) {
  Heard heard;
  const std::string text = message_of<CommError>([&] {
    run_loopback(3, kPatient, [&](Communicator& comm) {
      heard.listen(comm, [&] {
        const std::string name = "stage " + std::to_string(comm.rank());
        receive(comm, name.c_str(), (comm.rank() + 1) % 3);
      });
    });
  });
  // It is told by whoever came last.
  int last = 0;
  for (int rank = 0; rank < 3; ++rank) last = heard.of(rank) == text ? rank : last;
  const auto link = [](int rank) {
    return concat("rank ", rank, " waits for rank ", (rank + 1) % 3, " in 'stage ", rank, "'");
  };
  EXPECT_EQ(text,
            link(last) + "; " + link((last + 1) % 3) + "; " + link((last + 2) % 3) + ": they wait for each other");
  EXPECT_EQ(heard.of((last + 1) % 3), concat("rank ", last, " failed: ", text));
}

template <class E>
void a_failing_rank(const char* words) {
  for (const uint64_t delays : {0, 7}) {
    Heard heard;
    const std::string text = message_of<E>([&] {
      run_loopback(4, {.timeout = 0, .delays = delays}, [&](Communicator& comm) {
        heard.listen(comm, [&] {
          const Tensor value = at::ones({1});
          comm.all_reduce("first", world_group(4), value);
          if (comm.rank() == 2) throw E(words);
          comm.all_reduce("second", world_group(4), value);
        });
      });
    });
    EXPECT_EQ(text, words);
    for (const int rank : {0, 1, 3}) EXPECT_EQ(heard.of(rank), std::string("rank 2 failed: ") + words);
    EXPECT_EQ(heard.of(2), "");
  }
}

TEST(Loopback, AFailingRankWakesTheOthersAndKeepsItsClass) {
  a_failing_rank<UserError>("the recipe asks for 3 layers");
  a_failing_rank<PluginError>("encoder 'radar': output has 3 columns, declared 4");
  a_failing_rank<std::out_of_range>("vector::at");
}

struct Odd : PluginError {
  using PluginError::PluginError;
  int number = 42;
};

TEST(Loopback, TheOriginalObjectIsRethrown) {
  int seen = 0;
  try {
    run_loopback(2, kForEver, [](Communicator& comm) {
      if (comm.rank() == 1) throw Odd("odd");
      comm.barrier("end", {0, 1});
    });
  } catch (const Odd& odd) {
    seen = odd.number;
  }
  EXPECT_EQ(seen, 42);
  EXPECT_THROW(run_loopback(2, [](Communicator&) { throw 5; }), int);
}

TEST(Loopback, ErrorsOfTensorsAreToldWithoutABacktrace) {
  Heard heard;
  EXPECT_THROW(run_loopback(2, kForEver,
                            [&](Communicator& comm) {
                              heard.listen(comm, [&] {
                                if (comm.rank() == 0) at::zeros({2}).view({3});
                                comm.barrier("end", {0, 1});
                              });
                            }),
               c10::Error);
  EXPECT_EQ(heard.of(1).rfind("rank 0 failed: shape '[3]' is invalid", 0), 0u) << heard.of(1);
  EXPECT_EQ(heard.of(1).find("frame #"), std::string::npos) << heard.of(1);
}

TEST(Loopback, ACauseIsPreferredToThePeerThatGaveUpBeforeIt) {
  std::promise<void> gave_up;
  std::shared_future<void> until = gave_up.get_future().share();
  const std::string text = message_of<UserError>([&] {
    run_loopback(2, {.timeout = 0.05}, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        until.wait();
        throw UserError("a picture of no size");
      }
      try {
        comm.barrier("end", {0, 1});
      } catch (const CommError&) {
        gave_up.set_value();
        throw;
      }
    });
  });
  EXPECT_EQ(text, "a picture of no size");
}

TEST(Loopback, APeerThatHasFinishedIsAnErrorAtOnce) {
  for (const int pause : {0, 0, 20, 20}) {  // milliseconds: it finishes before, and while the other waits
    const std::string text = message_of<CommError>([&] {
      run_loopback(2, kPatient, [&](Communicator& comm) {
        if (comm.rank() == 1) {
          send(comm, "first", 0);  // sent before it finished, so it still arrives
          std::this_thread::sleep_for(std::chrono::milliseconds(pause));
        } else {
          receive(comm, "first", 1);
          receive(comm, "second", 1);
        }
      });
    });
    EXPECT_EQ(text, "rank 0 waits for rank 1 in 'second'; rank 1 has finished");
  }
}

TEST(Loopback, AMessageThatNobodyReceivesIsOurBug) {
  const std::string text = message_of<InternalError>([] {
    run_loopback(2, [](Communicator& comm) {
      if (comm.rank() == 0) send(comm, "bridge: rows", 1);
    });
  });
  EXPECT_NE(text.find("rank 0 sent 'bridge: rows' to rank 1, which never received it"), std::string::npos) << text;
  // A receive that was started and not waited for is the same.
  EXPECT_THROW(
      run_loopback(2,
                   [](Communicator& comm) {
                     const Pending dropped = comm.all_gather("weights", {0, 1}, at::zeros({1}), at::zeros({2}));
                     EXPECT_TRUE(dropped.active());
                   }),
      InternalError);
}

TEST(Loopback, AFailedWorldStaysFailed) {
  Heard heard;
  std::promise<void> failed;
  std::shared_future<void> until = failed.get_future().share();
  EXPECT_THROW(run_loopback(2, kForEver,
                            [&](Communicator& comm) {
                              if (comm.rank() == 0) {
                                EXPECT_THROW(comm.exchange("a", {}, {{1, at::zeros({1})}}).wait(), CommError);
                                failed.set_value();
                                throw UserError("after the fact");
                              }
                              comm.exchange("b", {{0, at::zeros({1})}}, {}).wait();
                              until.wait();
                              heard.listen(comm, [&] { send(comm, "c", 0); });
                            }),
               UserError);
  EXPECT_EQ(heard.of(1), "rank 0 failed: rank 0 is in 'a', rank 1 sent 'b': the ranks disagree about what comes next");
}

TEST(Loopback, WorldsAreIndependent) {
  std::vector<std::thread> worlds;
  for (int w = 0; w < 3; ++w) {
    worlds.emplace_back([w] {
      run_loopback(3, {.delays = static_cast<uint64_t>(w)}, [w](Communicator& comm) {
        const Tensor value = at::full({1}, w + 1.0);
        for (int round = 0; round < 10; ++round) comm.all_reduce("x", world_group(3), value.fill_(w + 1.0));
        EXPECT_EQ(value.item<float>(), 3.0f * static_cast<float>(w + 1));
      });
    });
  }
  for (std::thread& world : worlds) world.join();
  EXPECT_THROW(run_loopback(0, [](Communicator&) {}), InternalError);
}

}  // namespace
}  // namespace loom
