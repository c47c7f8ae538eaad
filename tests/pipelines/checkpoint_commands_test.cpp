// `omniloom checkpoint` on folders that are whole, damaged, of other ranks, or not there.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "core/base/error.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/comm/loopback.h"
#include "pipelines/checkpoint_diff.h"
#include "pipelines/checkpoint_report.h"
#include "tests/core/base/temp_folder.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

Tensor numbers() { return at::arange(24, at::kFloat).reshape({4, 6}); }

// Two ranks, each with half of the rows of "w" and a copy of "b".
void save_on_two(const std::string& run, int64_t step) {
  run_loopback(2, [&](Communicator& comm) {
    const int64_t first = 2 * comm.rank();
    CheckpointWriter(comm, run, {})
        .save(step, {{"w", numbers().narrow(0, first, 2), {4, 6}, Box{{first, 0}, {2, 6}}},
                     {"b", at::ones({3}, at::kFloat)}});
  });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

struct Verdict {
  int code = 0;
  std::vector<std::string> out, bad;
};

Verdict verify(const std::string& path) {
  std::ostringstream out, bad;
  const int code = verify_checkpoints_at(path, out, bad);
  return {code, lines_of(out.str()), lines_of(bad.str())};
}

TEST(CheckpointCommands, ListsWhatARunHas) {
  const test::TempFolder folder;
  const std::string run = folder / "run";
  save_checkpoint(run, 5, {{"w", numbers()}});
  save_on_two(run, 10);
  save_on_two(run, 20);
  std::filesystem::remove(step_folder(run, 20) + "/rank-00001.safetensors");
  std::ostringstream out;
  EXPECT_EQ(list_checkpoints_of(run + "/", out), 0);
  const std::vector<std::string> lines = lines_of(out.str());
  ASSERT_EQ(lines.size(), 4u);
  const auto words = [&](size_t line) {
    std::vector<std::string> all;
    std::istringstream in(lines[line]);
    for (std::string word; in >> word;) all.push_back(word);
    return all;
  };
  EXPECT_EQ(words(0), (std::vector<std::string>{"step", "size", "ranks", "age", "state"}));
  EXPECT_EQ(words(1)[0], "5");
  EXPECT_EQ(words(1)[3], "1");  // "1.0 kB" is two words
  EXPECT_EQ(words(1).back(), "complete");
  EXPECT_EQ(words(2)[0], "10");
  EXPECT_EQ(words(2)[3], "2");
  EXPECT_HAS(lines[3], "damaged: " + step_folder(run, 20) + "/rank-00001.safetensors: missing");
}

TEST(CheckpointCommands, VerifiesOneOrAll) {
  const test::TempFolder folder;
  const std::string run = folder / "run";
  save_on_two(run, 10);
  save_on_two(run, 20);
  Verdict verdict = verify(run);
  EXPECT_EQ(verdict.code, 0);
  ASSERT_EQ(verdict.out.size(), 2u);
  EXPECT_HAS(verdict.out[0], step_folder(run, 10) + ": ok, 2 tensors, 2 files");
  EXPECT_TRUE(verdict.bad.empty());

  const std::string file = step_folder(run, 20) + "/rank-00000.safetensors";
  std::string bytes = test::read_bytes(file);
  bytes.back() ^= 1;
  test::write_bytes(file, bytes);
  verdict = verify(run);
  EXPECT_EQ(verdict.code, 2);
  EXPECT_EQ(verdict.out.size(), 1u);
  ASSERT_EQ(verdict.bad.size(), 1u);
  EXPECT_HAS(verdict.bad[0], file + ": altered");
  EXPECT_EQ(verify(step_folder(run, 10)).code, 0);
  EXPECT_EQ(verify(step_folder(run, 20)).code, 2);
}

TEST(CheckpointCommands, ComparesBitByBit) {
  const test::TempFolder folder;
  const std::string a = folder / "a", b = folder / "b", c = folder / "c";
  save_on_two(a, 10);
  save_checkpoint(b, 3, {{"w", numbers()}, {"b", at::ones({3}, at::kFloat)}});
  std::ostringstream equal;
  EXPECT_EQ(diff_checkpoints(checkpoint_at(a), checkpoint_at(b), equal), 0);
  EXPECT_EQ(equal.str(), "equal: 2 tensors\n");

  Tensor changed = numbers();
  changed[1][2] += 0.25;
  changed[3][5] -= 2;
  changed[0][0] = -0.0;  // another bit, the same value
  save_checkpoint(c, 1, {{"w", changed}, {"b", at::ones({3}, at::kDouble)}, {"new", at::ones({2}, at::kLong)}});
  save_checkpoint(b, 4, {{"w", numbers()}, {"b", at::ones({3}, at::kFloat)}, {"old", at::ones({}, at::kLong)}});
  std::ostringstream out;
  EXPECT_EQ(diff_checkpoints(checkpoint_at(b), checkpoint_at(c), out), 1);
  const std::string first = step_folder(b, 4), second = step_folder(c, 1);
  EXPECT_EQ(lines_of(out.str()),
            (std::vector<std::string>{"b: F32 [3] and F64 [3]", "only in " + first + ": old I64 []",
                                      "w: 3 of 24 values differ, by up to 2", "only in " + second + ": new I64 [2]",
                                      "4 of 4 tensors differ"}));

  const float nan = std::numeric_limits<float>::quiet_NaN();
  save_checkpoint(a, 11, {{"x", at::full({4}, nan, at::kFloat)}});
  Tensor half = at::full({4}, nan, at::kFloat);
  half[1] = 1;
  save_checkpoint(b, 11, {{"x", half}});
  std::ostringstream nans;
  EXPECT_EQ(diff_checkpoints(checkpoint_at(a), checkpoint_at(b), nans), 1);
  EXPECT_HAS(nans.str(), "x: 1 of 4 values differ, by up to 0; 1 are nan in one of them");
}

TEST(CheckpointCommands, WrongPathsAreOneLineWithTheNearestName) {
  const test::TempFolder folder;
  const std::string run = folder / "my-run-1";
  save_checkpoint(run, 5, {{"w", numbers()}});
  std::filesystem::create_directories(folder / "other");
  std::ostringstream out;
  const auto text = [&](const std::string& path) {
    return test::line_of<UserError>([&] { list_checkpoints_of(path, out); });
  };
  EXPECT_EQ(text(folder / "my-run-2"),
            concat(folder / "my-run-2", ": no such folder; expected a run; did you mean '", run, "'?"));
  EXPECT_HAS(text(folder / "other"), "other: holds no checkpoints; expected a run");
  EXPECT_HAS(test::line_of<UserError>([&] { verify(folder / "other"); }), "a run or one of its checkpoints");
  EXPECT_HAS(test::line_of<UserError>([&] { verify(run + "/checkpoints/step-6"); }),
             concat("did you mean '", step_folder(run, 5), "'?"));
  EXPECT_HAS(test::line_of<UserError>([&] { checkpoint_at(folder / "other"); }), "a run or one of its checkpoints");
  EXPECT_EQ(checkpoint_at(run), step_folder(run, 5));
  std::filesystem::remove(step_folder(run, 5) + "/manifest.json");
  EXPECT_HAS(test::line_of<UserError>([&] { checkpoint_at(run); }), "holds no complete checkpoint");
  EXPECT_HAS(test::line_of<UserError>([&] { checkpoint_at(step_folder(run, 5)); }), "no manifest.json");
}

}  // namespace
}  // namespace loom
