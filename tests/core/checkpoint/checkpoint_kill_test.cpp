// kill -9 at random instants of a process that does nothing but save. The process is this test binary started anew (a
// fork of a process with threads would test the fork); it reports each finished save through a pipe, so the newest one
// must be at least that.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/comm/loopback.h"
#include "tests/core/checkpoint/files.h"

extern char** environ;

namespace loom {
namespace {

using test::TempFolder;

constexpr const char* kRunVariable = "OMNILOOM_TEST_KILLED_RUN";
constexpr const char* kRanksVariable = "OMNILOOM_TEST_KILLED_RANKS";
constexpr int kReportDescriptor = 17;
constexpr int kTensors = 12;

// Values are a function of the step and of the saving (`round`), so a mixture of two saves shows.
std::vector<NamedTensor> tensors(int64_t step, int64_t round) {
  std::vector<NamedTensor> out;
  for (int i = 0; i < kTensors; ++i) {
    out.push_back({concat("t", i), at::full({4096}, static_cast<double>(step * 1000 + round), at::kDouble)});
  }
  return out;
}

// What a rank of several has: its rows of all but the last tensor, which every rank has.
std::vector<NamedTensor> parts_of(std::vector<NamedTensor> whole, int rank, int ranks) {
  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    const int64_t rows = 4096 / ranks, first = rank * rows;
    whole[i] = {whole[i].name, whole[i].tensor.narrow(0, first, rows), {4096}, Box{{first}, {rows}}};
  }
  return whole;
}

// Child: saves for ever. Every third step is saved twice, which replaces a folder. What is saved is spoilt as soon as
// it may be.
TEST(CheckpointKillChild, DISABLED_Saver) {
  const char* run = ::getenv(kRunVariable);
  if (run == nullptr) GTEST_SKIP() << "only started by the tests below";
  const std::optional<CheckpointInfo> newest = latest_checkpoint(run);
  const int ranks = std::stoi(::getenv(kRanksVariable));
  run_loopback(ranks, [&](Communicator& comm) {
    CheckpointWriter writer(comm, run, {.keep = 3});
    for (int64_t step = newest.has_value() ? newest->step : 1;; ++step) {
      for (int64_t round = 1; round <= (step % 3 == 0 ? 2 : 1); ++round) {
        const std::vector<NamedTensor> mine = parts_of(tensors(step, round), comm.rank(), ranks);
        writer.save(step, mine, concat("{\"round\":", round, "}"));
        writer.wait_copied();
        for (const NamedTensor& tensor : mine) tensor.tensor.fill_(-1);
        writer.finish();
        const int64_t report[2] = {step, round};
        if (comm.rank() == 0 && ::write(kReportDescriptor, report, sizeof report) != sizeof report) ::_exit(1);
      }
    }
  });
}

class Saver {
 public:
  Saver(const std::string& run, int ranks) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    report_ = ends[0];
    std::vector<std::string> environment = {concat(kRunVariable, "=", run), concat(kRanksVariable, "=", ranks)};
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (std::strncmp(*variable, "GTEST_", 6) != 0) environment.push_back(*variable);  // shards, filters
    }
    std::vector<char*> environment_list;
    for (std::string& variable : environment) environment_list.push_back(variable.data());
    environment_list.push_back(nullptr);
    std::vector<std::string> words = {"saver", "--gtest_also_run_disabled_tests",
                                      "--gtest_filter=CheckpointKillChild.*", "--gtest_brief=1"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], kReportDescriptor);
    if (::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environment_list.data()) != 0)
      pid_ = -1;
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
  }
  ~Saver() {
    kill_now();
    ::close(report_);
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  bool alive() const { return pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  void kill_now() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // The newest finished save, {0, 0} when none was finished yet.
  std::pair<int64_t, int64_t> finished() {
    int64_t report[2];
    while (::read(report_, report, sizeof report) == sizeof report) last_ = {report[0], report[1]};
    return last_;
  }

 private:
  pid_t pid_ = -1;
  int report_ = -1;
  std::pair<int64_t, int64_t> last_{0, 0};
};

void expect_loadable_after_kills(int ranks, uint64_t kills) {
  const TempFolder run;
  const Philox random(RandomKey{.seed = 20});
  int torn = 0;
  std::pair<int64_t, int64_t> before{0, 0};
  for (uint64_t kill = 0; kill < kills; ++kill) {
    Saver saver(run.path(), ranks);
    while (saver.finished().first == 0) {
      ASSERT_TRUE(saver.alive()) << "the saver ended by itself";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(30000, kill)));
    saver.kill_now();
    const std::pair<int64_t, int64_t> finished = saver.finished();

    const std::optional<CheckpointInfo> newest = latest_checkpoint(run.path());
    ASSERT_TRUE(newest.has_value());
    EXPECT_GE(newest->step, finished.first);
    EXPECT_GE(finished.first, before.first);
    std::vector<NamedTensor> back = tensors(0, 0);
    const Manifest manifest = load_checkpoint(newest->folder, back);
    EXPECT_EQ(manifest.step, newest->step);
    const int64_t round = manifest.extra == "{\"round\":2}" ? 2 : 1;
    if (newest->step == finished.first) {
      EXPECT_GE(round, finished.second);
    }
    const std::vector<NamedTensor> expected = tensors(newest->step, round);
    for (int i = 0; i < kTensors; ++i)
      ASSERT_TRUE(at::equal(back[static_cast<size_t>(i)].tensor, expected[static_cast<size_t>(i)].tensor))
          << "step " << newest->step;
    int leftovers = 0;
    for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints")) {
      leftovers += entry.path().filename().string().find(".tmp-") != std::string::npos ? 1 : 0;
    }
    EXPECT_LE(leftovers, 2) << "leftovers of earlier kills were not cleaned";
    torn += leftovers > 0 ? 1 : 0;
    before = finished;
  }
  EXPECT_GT(torn, static_cast<int>(kills) / 4) << "too few kills fell into a save for this test to mean anything";
}

TEST(CheckpointKill, TheNewestCompleteOneAlwaysLoads) { expect_loadable_after_kills(1, 20); }

TEST(CheckpointKill, AlsoWhenRanksWriteTogether) { expect_loadable_after_kills(4, 12); }

}  // namespace
}  // namespace loom
