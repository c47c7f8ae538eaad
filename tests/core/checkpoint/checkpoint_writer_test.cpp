// Saving behind the ranks' backs: a snapshot of the moment of the call, one plan, and errors that reach everybody.
#include "core/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <barrier>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/checkpoint/checkpoint.h"
#include "core/comm/loopback.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/checkpoint/layouts.h"

namespace loom {
namespace {

using test::RankState;
using test::TempFolder;

// No file of this process may grow beyond this while it lives: the write path of a full disk.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    struct rlimit small = before_;
    small.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  struct rlimit before_ {};
  void (*handler_)(int);
};

// Rank 1 holds a large tensor, the others small ones.
std::vector<NamedTensor> uneven(int rank, double value) {
  return {{concat("w", rank), at::full({rank == 1 ? 200'000 : 100}, value, at::kFloat)}};
}

std::vector<std::string> folders_in(const std::string& run) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints"))
    out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

template <class E>
std::string error_at_poll(CheckpointWriter& writer) {
  return test::line_of<E>([&] {
    while (writer.busy()) {
      writer.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

TEST(CheckpointWriter, TakesTheStateOfTheMoment) {
  const TempFolder run;
  run_loopback(4, [&](Communicator& comm) {
    RankState state(comm, {4, 2});
    CheckpointWriter writer(comm, run.path(), {});
    for (int64_t step = 1; step <= 4; ++step) {
      state.fill(step);
      writer.save(step, state.tensors());  // waits for the one before
      writer.wait_copied();
      state.fill(-1);
    }
    writer.finish();
    EXPECT_FALSE(writer.busy());
    EXPECT_EQ(writer.stats().snapshot_bytes, writer.plan().bytes[static_cast<size_t>(comm.rank())]);
    for (int64_t step = 1; step <= 4; ++step) {
      load_checkpoint(comm, step_folder(run.path(), step), state.tensors());
      EXPECT_EQ(state.wrong(step), 0) << step;
    }
  });
}

TEST(CheckpointWriter, PlansOnceAndThenSaysNothingOnTheRanksOwnQueue) {
  const TempFolder run;
  run_loopback(2, [&](Communicator& comm) {
    RankState state(comm, {2, 1});
    CheckpointWriter writer(comm, run.path(), {.keep = 2});
    writer.save(1, state.tensors());
    EXPECT_EQ(writer.stats().plans, 1);
    comm.reset_counts();
    for (int64_t step = 2; step <= 3; ++step) writer.save(step, state.tensors());
    EXPECT_EQ(comm.bytes_sent(), 0);
    EXPECT_EQ(writer.stats().plans, 1);
    EXPECT_EQ(writer.stats().saves, 3);
    std::vector<NamedTensor> more = state.tensors();
    more.push_back({"more", at::ones({3}, at::kFloat)});
    writer.save(4, more);
    EXPECT_EQ(writer.stats().plans, 2);
    EXPECT_GT(comm.bytes_sent(), 0);
    writer.finish();
  });
  EXPECT_EQ(folders_in(run.path()), (std::vector<std::string>{"step-3", "step-4"}));
  EXPECT_EQ(read_manifest(step_folder(run.path(), 4)).tensors.count("more"), 1u);
}

TEST(CheckpointWriter, AFullDiskOnOneRankReachesAllAndLeavesTheEarlierOne) {
  for (const bool async : {true, false}) {
    const TempFolder run;
    std::vector<std::string> words(3);
    run_loopback(3, [&](Communicator& comm) {
      CheckpointWriter writer(comm, run.path(), {.async = async});
      const RankGroup all = world_group(comm.world());
      writer.save(1, uneven(comm.rank(), 1));
      writer.finish();
      comm.barrier("test: saved", all);
      {
        std::optional<SmallFiles> limit;
        if (comm.rank() == 0) limit.emplace(50'000);
        comm.barrier("test: full", all);
        std::string& text = words[static_cast<size_t>(comm.rank())];
        if (async) {
          writer.save(2, uneven(comm.rank(), 2));
          text = error_at_poll<EnvironmentError>(writer);
        } else {
          text = test::line_of<EnvironmentError>([&] { writer.save(2, uneven(comm.rank(), 2)); });
        }
        comm.barrier("test: failed", all);
        if (comm.rank() == 0) {
          EXPECT_EQ(folders_in(run.path()), std::vector<std::string>{"step-1"});
        }
      }
      comm.barrier("test: space again", all);
      std::vector<NamedTensor> back = uneven(comm.rank(), 0);
      load_checkpoint(step_folder(run.path(), 1), back, {.unasked = Unasked::ignore});
      EXPECT_TRUE(at::equal(back[0].tensor, uneven(comm.rank(), 1)[0].tensor));
      writer.save(3, uneven(comm.rank(), 3));  // nothing is left of the failure
      writer.finish();
    });
    for (const std::string& text : words) EXPECT_EQ(text, words[0]);
    EXPECT_HAS(words[0], "step 2 was not saved: rank 1: ");
    EXPECT_HAS(words[0], "rank-00001.safetensors: File too large");
    EXPECT_HAS(words[0], "checkpoints saved before are intact");
    EXPECT_EQ(folders_in(run.path()), (std::vector<std::string>{"step-1", "step-3"}));
  }
}

TEST(CheckpointWriter, AnErrorIsThrownByWhateverIsAskedNext) {
  const TempFolder run;
  test::write_bytes(run / "file", "x");
  run_loopback(2, [&](Communicator& comm) {
    CheckpointWriter writer(comm, run / "file/run", {});
    writer.save(1, uneven(comm.rank(), 1));
    EXPECT_HAS(test::line_of<EnvironmentError>([&] { writer.finish(); }), "file/run");
    writer.finish();  // told once
    writer.save(2, uneven(comm.rank(), 1));
    EXPECT_HAS(test::line_of<EnvironmentError>([&] { writer.save(3, uneven(comm.rank(), 1)); }),
               "step 2 was not saved");
  });
}

TEST(CheckpointWriter, AnErrorThatNobodyAskedForIsAWarning) {
  const TempFolder run;
  test::write_bytes(run / "file", "x");
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  { CheckpointWriter(alone(), run / "file/run", {}).save(1, uneven(0, 1)); }
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_HAS(lines[0], "step 1 was not saved");
}

TEST(CheckpointWriter, ARankThatLeavesEndsTheSaveOfTheOthers) {
  const TempFolder run;
  std::vector<std::string> words(3);
  std::barrier saved(3);  // outside of the world that fails
  const std::string first = test::message_of<UserError>([&] {
    run_loopback(3, [&](Communicator& comm) {
      CheckpointWriter writer(comm, run.path(), {});
      writer.save(1, uneven(comm.rank(), 1));
      writer.finish();
      saved.arrive_and_wait();
      if (comm.rank() == 2) throw UserError("bad sample");
      words[static_cast<size_t>(comm.rank())] = test::line_of<CommError>([&] {
        writer.save(2, uneven(comm.rank(), 2));
        writer.finish();
      });
    });
  });
  EXPECT_EQ(first, "bad sample");
  for (int rank = 0; rank < 2; ++rank) EXPECT_HAS(words[static_cast<size_t>(rank)], "rank 2");
  EXPECT_EQ(latest_checkpoint(run.path())->step, 1);
  EXPECT_EQ(folders_in(run.path()), std::vector<std::string>{"step-1"});
}

}  // namespace
}  // namespace loom
