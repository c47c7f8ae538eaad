// Folders, names, damage: what is saved comes back bit for bit, and what is broken is named and stepped over.
#include "core/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/checkpoint/safetensors.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

namespace fs = std::filesystem;
using test::line_of;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

std::vector<NamedTensor> tensors(double value) {
  return {{"backbone.embed.weight", at::full({5, 3}, value, at::kFloat)},
          {"backbone.blocks.0.norm", at::full({3}, value + 1, at::kDouble)},
          {"optimizer.steps", at::scalar_tensor(static_cast<int64_t>(value), at::kLong)}};
}

std::vector<std::string> warnings_of(const std::function<void()>& action) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level == LogLevel::warn) lines.push_back(line);
  });
  action();
  set_log_sink({});
  return lines;
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

TEST(Checkpoint, ComesBackBitForBit) {
  const TempFolder run;
  const std::string folder = save_checkpoint(run.path(), 12, tensors(3), R"({"loader":{"position":77},"loss":0.1})");
  EXPECT_EQ(folder, run / "checkpoints/step-12");
  EXPECT_EQ(entries(folder), (std::vector<std::string>{"manifest.json", "rank-00000.safetensors"}));
  std::vector<NamedTensor> back = tensors(0);
  const Manifest manifest = load_checkpoint(folder, back);
  for (size_t i = 0; i < back.size(); ++i) EXPECT_TRUE(at::equal(back[i].tensor, tensors(3)[i].tensor)) << back[i].name;
  EXPECT_EQ(manifest.step, 12);
  EXPECT_EQ(nlohmann::json::parse(manifest.extra)["loader"]["position"], 77);
  EXPECT_EQ(nlohmann::json::parse(manifest.extra)["loss"], 0.1);
  const nlohmann::json raw = nlohmann::json::parse(read_bytes(folder + "/manifest.json"));
  EXPECT_EQ(raw["format"], "omniloom-checkpoint");
  EXPECT_EQ(raw["tensors"]["backbone.embed.weight"]["boxes"][0]["size"], (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(raw["files"]["rank-00000.safetensors"]["bytes"], fs::file_size(folder + "/rank-00000.safetensors"));
}

TEST(Checkpoint, SaveRestoreSaveGivesEqualFiles) {
  const TempFolder first, second;
  const std::string a = save_checkpoint(first.path(), 3, tensors(3), R"({"a":1})");
  std::vector<NamedTensor> back = tensors(0);
  const Manifest manifest = load_checkpoint(a, back);
  const std::string b = save_checkpoint(second.path(), manifest.step, back, manifest.extra);
  for (const std::string& name : entries(a)) EXPECT_EQ(read_bytes(a + "/" + name), read_bytes(b + "/" + name)) << name;
}

TEST(Checkpoint, LoadsLeavesThatNeedGradientsAndPartsOfTensors) {
  const TempFolder run;
  const Tensor whole = at::arange(20, at::kFloat).reshape({4, 5});
  const std::string folder = save_checkpoint(run.path(), 1, {{"w", whole}});
  Tensor leaf = at::zeros({4, 5}, at::kFloat).requires_grad_();
  load_checkpoint(folder, {{"w", leaf}});
  EXPECT_TRUE(at::equal(leaf.detach(), whole));
  const Tensor part = at::zeros({2, 3}, at::kFloat);
  load_checkpoint(folder, {{"w", part, {4, 5}, Box{{1, 2}, {2, 3}}}});
  EXPECT_TRUE(at::equal(part, whole.slice(0, 1, 3).slice(1, 2, 5)));
}

TEST(Checkpoint, ReadsTensorsSpreadOverFilesInBoxes) {
  const TempFolder run;
  const Tensor whole = at::arange(24, at::kFloat).reshape({4, 6});
  const std::string folder = run / "checkpoints/step-9";
  fs::create_directories(folder);
  Manifest manifest;
  manifest.step = 9;
  StoredTensor& stored = manifest.tensors["w"];
  stored.shape = {4, 6};
  const std::vector<Box> boxes = {{{0, 0}, {4, 2}}, {{0, 2}, {3, 4}}, {{3, 2}, {1, 4}}};
  for (size_t r = 0; r < boxes.size(); ++r) {
    const Box& box = boxes[r];
    const std::string file = concat("rank-0000", r, ".safetensors");
    const Tensor piece =
        whole.slice(0, box.offset[0], box.offset[0] + box.size[0]).slice(1, box.offset[1], box.offset[1] + box.size[1]);
    const WrittenFile written = write_safetensors(folder + "/" + file, {{"piece", piece}});
    manifest.files[file] = {written.bytes, written.crc32};
    stored.boxes.push_back({file, "piece", box});
  }
  write_bytes(folder + "/manifest.json", manifest_json(manifest));
  const Tensor back = at::zeros({4, 6}, at::kFloat), part = at::zeros({3, 2}, at::kFloat);
  load_checkpoint(folder, {{"w", back}});
  EXPECT_TRUE(at::equal(back, whole));
  load_checkpoint(folder, {{"w", part, {4, 6}, Box{{1, 1}, {3, 2}}}});
  EXPECT_TRUE(at::equal(part, whole.slice(0, 1, 4).slice(1, 1, 3)));

  stored.boxes.pop_back();  // a row is missing now
  write_bytes(folder + "/manifest.json", manifest_json(manifest));
  EXPECT_HAS(line_of<UserError>([&] {
               load_checkpoint(folder, {{"w", back}});
             }),
             "do not cover the tensor exactly once");
}

TEST(Checkpoint, MismatchesAreOneLineAndChangeNothing) {
  const TempFolder run;
  const std::string folder = save_checkpoint(run.path(), 1, tensors(3));
  std::vector<NamedTensor> wanted = tensors(0);
  const auto text_of = [&] { return line_of<UserError>([&] { load_checkpoint(folder, wanted); }); };

  wanted[0].name = "backbone.embde.weight";
  EXPECT_HAS(text_of(),
             "has no tensor 'backbone.embde.weight', which this model needs; did you mean 'backbone.embed.weight'?");
  wanted = tensors(0);
  wanted.pop_back();
  EXPECT_HAS(text_of(), "holds tensor 'optimizer.steps', which this model does not have");
  EXPECT_NO_THROW(load_checkpoint(folder, wanted, {.unasked = Unasked::ignore}));
  wanted = tensors(0);
  wanted[1].tensor = at::zeros({4}, at::kDouble);
  EXPECT_HAS(text_of(), "tensor 'backbone.blocks.0.norm' is F64 [3]; this model has F64 [4]");
  EXPECT_TRUE(at::equal(wanted[0].tensor, tensors(0)[0].tensor));
  wanted[1].tensor = at::zeros({3}, at::kFloat);
  EXPECT_HAS(text_of(), "is F64 [3]; this model has F32 [3]");
  EXPECT_HAS(line_of<UserError>([&] { load_checkpoint(run / "checkpoints/step-4", wanted); }),
             "no such checkpoint folder");
}

TEST(Checkpoint, AFlippedBitIsFoundByTheChecksum) {
  const TempFolder run;
  const std::string folder = save_checkpoint(run.path(), 1, tensors(3));
  const std::string path = folder + "/rank-00000.safetensors";
  std::string bytes = read_bytes(path);
  bytes.back() ^= 1;
  write_bytes(path, bytes);
  std::vector<NamedTensor> wanted = tensors(0);
  const std::string text = line_of<UserError>([&] { load_checkpoint(folder, wanted); });
  EXPECT_HAS(text, path);
  EXPECT_HAS(text, "checksum");
  EXPECT_TRUE(at::equal(wanted[0].tensor, tensors(0)[0].tensor));
  EXPECT_NO_THROW(load_checkpoint(folder, wanted, {.verify = false}));
}

TEST(Checkpoint, LatestStepsOverDamagedFolders) {
  const TempFolder run;
  EXPECT_FALSE(latest_checkpoint(run.path()).has_value());
  save_checkpoint(run.path(), 9, tensors(9));
  save_checkpoint(run.path(), 10, tensors(10));
  const std::string torn = save_checkpoint(run.path(), 11, tensors(11));
  const std::string file = torn + "/rank-00000.safetensors";
  const std::string bytes = read_bytes(file);

  EXPECT_EQ(latest_checkpoint(run.path())->step, 11);  // not the greatest by text
  write_bytes(file, bytes.substr(0, bytes.size() / 2));
  std::vector<std::string> lines = warnings_of([&] { EXPECT_EQ(latest_checkpoint(run.path())->step, 10); });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_HAS(lines[0], "checkpoint step 11 is damaged");
  EXPECT_HAS(lines[0], "truncated: expected");
  EXPECT_HAS(lines[0], "taking step 10");
  EXPECT_HAS(line_of<UserError>([&] { load_checkpoint(torn, tensors(0)); }), "truncated");

  fs::remove(file);
  EXPECT_HAS(checkpoint_damage(torn), "missing");
  write_bytes(file, bytes);
  EXPECT_EQ(checkpoint_damage(torn), "");
  const std::string manifest = read_bytes(torn + "/manifest.json");
  write_bytes(torn + "/manifest.json", manifest.substr(0, 40));
  EXPECT_HAS(checkpoint_damage(torn), "damaged checkpoint manifest");
  fs::remove(torn + "/manifest.json");
  EXPECT_HAS(checkpoint_damage(torn), "no manifest.json");

  fs::create_directories(run / "checkpoints/step-12.tmp-1");
  fs::create_directories(run / "checkpoints/step-99-mine");
  fs::create_directories(run / "checkpoints/step-x");
  std::vector<std::string> damaged;
  const std::vector<CheckpointInfo> found = list_checkpoints(run.path(), &damaged);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 9);
  EXPECT_EQ(found[1].step, 10);
  EXPECT_EQ(damaged.size(), 1u);
  save_checkpoint(run.path(), 11, tensors(11));  // heals it
  EXPECT_EQ(warnings_of([&] { EXPECT_EQ(latest_checkpoint(run.path())->step, 11); }).size(), 0u);
}

TEST(Checkpoint, SavingAStepAgainReplacesItAndLeftoversGo) {
  const TempFolder run;
  save_checkpoint(run.path(), 5, tensors(1));
  const pid_t child = ::fork();  // a process id that is certainly free again
  if (child == 0) ::_exit(0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  fs::create_directories(run / concat("checkpoints/step-7.tmp-", child));
  fs::create_directories(run / concat("checkpoints/step-8.tmp-", ::getppid()));  // alive: not ours to remove
  save_checkpoint(run.path(), 5, tensors(2));
  EXPECT_EQ(entries(run / "checkpoints"), (std::vector<std::string>{"step-5", concat("step-8.tmp-", ::getppid())}));
  std::vector<NamedTensor> back = tensors(0);
  load_checkpoint(run / "checkpoints/step-5", back);
  EXPECT_TRUE(at::equal(back[0].tensor, tensors(2)[0].tensor));

  // The state between the two renames of a file system that cannot swap folders.
  fs::rename(run / "checkpoints/step-5", run / concat("checkpoints/step-5.old-", child));
  EXPECT_EQ(latest_checkpoint(run.path())->step, 5);
  save_checkpoint(run.path(), 6, tensors(6));
  EXPECT_TRUE(fs::exists(run / "checkpoints/step-5/manifest.json"));
}

TEST(Checkpoint, PruneKeepsTheNewest) {
  const TempFolder run;
  for (const int64_t step : {2, 10, 100, 30}) save_checkpoint(run.path(), step, tensors(1));
  EXPECT_EQ(prune_checkpoints(run.path(), 0), 0);
  EXPECT_EQ(prune_checkpoints(run.path(), 9), 0);
  EXPECT_EQ(prune_checkpoints(run.path(), 2), 2);
  EXPECT_EQ(entries(run / "checkpoints"), (std::vector<std::string>{"step-100", "step-30"}));
}

}  // namespace
}  // namespace loom
