// Saving where it cannot work: a full disk, a read-only mount, a path that cannot be created, a file that may not grow.
// One line, class EnvironmentError, and what was saved before still loads. Mounts need privileges; without them those
// tests say so and skip.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/checkpoint/checkpoint.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

using test::line_of;
using test::TempFolder;

class Mount {
 public:
  explicit Mount(const std::string& path) : path_(path) {
    if (::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") != 0) problem_ = std::strerror(errno);
  }
  ~Mount() {
    if (problem_.empty()) ::umount2(path_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  const std::string& problem() const { return problem_; }
  bool make_read_only() { return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m") == 0; }

 private:
  std::string path_, problem_;
};

std::vector<NamedTensor> tensors(int64_t kilobytes, double value) {
  return {{"w", at::full({kilobytes * 256}, value, at::kFloat)}};
}

void expect_intact(const std::string& run, int64_t step, int64_t kilobytes, double value) {
  const std::optional<CheckpointInfo> newest = latest_checkpoint(run);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, step);
  std::vector<NamedTensor> back = tensors(kilobytes, 0);
  load_checkpoint(newest->folder, back);
  EXPECT_TRUE(at::equal(back[0].tensor, tensors(kilobytes, value)[0].tensor));
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(run + "/checkpoints"), std::filesystem::directory_iterator()),
      1);
}

TEST(CheckpointDisk, FullDiskKeepsTheEarlierOne) {
  const TempFolder run;
  const Mount mount(run.path());
  if (!mount.problem().empty()) GTEST_SKIP() << "cannot mount a small tmpfs: " << mount.problem();
  save_checkpoint(run.path(), 1, tensors(300, 1.5));
  const std::string text = line_of<EnvironmentError>([&] { save_checkpoint(run.path(), 2, tensors(900, 2.5)); });
  EXPECT_HAS(text, "step 2 was not saved");
  EXPECT_HAS(text, "disk full");
  EXPECT_HAS(text, run.path());
  expect_intact(run.path(), 1, 300, 1.5);
  save_checkpoint(run.path(), 1, tensors(300, 3.5));  // the space of the failed one is free again
  expect_intact(run.path(), 1, 300, 3.5);
}

TEST(CheckpointDisk, ReadOnlyMount) {
  const TempFolder run;
  Mount mount(run.path());
  if (!mount.problem().empty()) GTEST_SKIP() << "cannot mount a small tmpfs: " << mount.problem();
  save_checkpoint(run.path(), 1, tensors(10, 1.5));
  ASSERT_TRUE(mount.make_read_only()) << std::strerror(errno);
  const std::string text = line_of<EnvironmentError>([&] { save_checkpoint(run.path(), 2, tensors(10, 2.5)); });
  EXPECT_HAS(text, "Read-only file system");
  EXPECT_HAS(text, run.path());
  expect_intact(run.path(), 1, 10, 1.5);
}

TEST(CheckpointDisk, PathThatCannotBeCreated) {
  const TempFolder run;
  test::write_bytes(run / "file", "x");
  const std::string text = line_of<EnvironmentError>([&] { save_checkpoint(run / "file/run", 2, tensors(1, 2.5)); });
  EXPECT_HAS(text, "file/run");
  EXPECT_EQ(list_checkpoints(run / "nothing").size(), 0u);
}

TEST(CheckpointDisk, AFileThatMayNotGrow) {  // the write path of a full disk, without privileges
  const TempFolder run;
  save_checkpoint(run.path(), 1, tensors(300, 1.5));
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 500 * 1024;
  void (*handler)(int) = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string text;
  try {
    save_checkpoint(run.path(), 2, tensors(900, 2.5));
  } catch (const EnvironmentError& problem) {
    text = problem.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_HAS(text, "step 2 was not saved");
  EXPECT_HAS(text, "File too large");
  expect_intact(run.path(), 1, 300, 1.5);
}

}  // namespace
}  // namespace loom
