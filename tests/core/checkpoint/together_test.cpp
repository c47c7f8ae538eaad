// One outcome for all ranks, however long one of them works.
#include "core/checkpoint/together.h"
#include "core/comm/texts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

TEST(Together, TextsOfAllRanks) {
  for (const int world : {1, 2, 5}) {
    run_loopback(world, [&](Communicator& comm) {
      // Of different lengths, and one that is empty.
      const auto text = [](int rank) {
        return std::string(static_cast<size_t>(rank * rank), static_cast<char>('a' + rank));
      };
      const std::vector<std::string> all = exchange_texts(comm, "test: texts", text(comm.rank()));
      ASSERT_EQ(all.size(), static_cast<size_t>(world));
      for (int rank = 0; rank < world; ++rank) EXPECT_EQ(all[static_cast<size_t>(rank)], text(rank));
      EXPECT_EQ(together(comm, "test: work", [&] { return text(comm.rank()); }), all);
    });
  }
}

TEST(Together, WorkMayLastLongerThanARankMayBeSilent) {
  run_loopback(3, {.timeout = 0.2}, [&](Communicator& comm) {
    const auto all = together(comm, "test: work", [&] {
      if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
      return std::to_string(comm.rank());
    });
    EXPECT_EQ(all, (std::vector<std::string>{"0", "1", "2"}));
  });
}

TEST(Together, AFailureIsEverybodysWithItsClassAndRank) {
  std::vector<std::string> words(3);
  run_loopback(3, [&](Communicator& comm) {
    words[static_cast<size_t>(comm.rank())] = test::message_of<EnvironmentError>([&] {
      together(comm, "test: work", [&]() -> std::string {
        if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (comm.rank() == 2) throw EnvironmentError("cannot write x: disk full");
        return "";
      });
    });
    EXPECT_EQ(exchange_texts(comm, "test: after", "x").size(), 3u);  // nobody is out of step
  });
  EXPECT_EQ(words, std::vector<std::string>(3, "rank 2: cannot write x: disk full"));

  run_loopback(2, [&](Communicator& comm) {
    const std::string text = test::message_of<UserError>(
        [&] { together(comm, "test: work", []() -> std::string { throw UserError("x: no such folder"); }); });
    EXPECT_EQ(text, "x: no such folder");  // the same on all ranks: told like that of one
    EXPECT_THROW(together(comm, "test: work", []() -> std::string { throw std::runtime_error("?"); }), InternalError);
  });
}

}  // namespace
}  // namespace loom
