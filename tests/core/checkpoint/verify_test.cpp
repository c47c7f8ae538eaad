// Every kind of damage is named with its file, all of it at once.
#include "core/checkpoint/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/checkpoint/safetensors.h"
#include "core/comm/loopback.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/checkpoint/layouts.h"

namespace loom {
namespace {

TEST(VerifyCheckpoint, NamesEveryDamagedFile) {
  const test::TempFolder run;
  run_loopback(4, [&](Communicator& comm) {
    test::RankState state(comm, {4, 4});
    state.fill(1);
    CheckpointWriter(comm, run.path(), {}).save(1, state.tensors());
  });
  const std::string folder = step_folder(run.path(), 1);
  EXPECT_TRUE(verify_checkpoint(folder).empty());

  const auto file = [&](int rank) { return folder + "/" + rank_file(rank); };
  const std::string bytes = test::read_bytes(file(0));
  std::string altered = bytes;
  altered[altered.size() - 9] ^= 1;
  test::write_bytes(file(0), altered);
  test::write_bytes(file(1), test::read_bytes(file(1)).substr(0, 1000));
  std::filesystem::remove(file(2));
  const std::vector<std::string> damage = verify_checkpoint(folder);
  ASSERT_EQ(damage.size(), 3u);
  EXPECT_HAS(damage[0], file(0) + ": altered");
  EXPECT_HAS(damage[1], file(1) + ": truncated: expected");
  EXPECT_HAS(damage[2], file(2) + ": missing");

  std::filesystem::remove(folder + "/manifest.json");
  EXPECT_EQ(verify_checkpoint(folder), std::vector<std::string>{folder + "/manifest.json: missing"});
  test::write_bytes(folder + "/manifest.json", "{}");
  ASSERT_EQ(verify_checkpoint(folder).size(), 1u);
  EXPECT_HAS(verify_checkpoint(folder)[0], "manifest.json: not a checkpoint manifest");
}

TEST(VerifyCheckpoint, AFileThatIsWholeButOfSomethingElse) {
  const test::TempFolder run;
  const std::string folder = save_checkpoint(run.path(), 1, {{"w", at::ones({4, 2}, at::kFloat)}});
  const std::string name = rank_file(0);
  const auto replace = [&](const std::string& key, const Tensor& tensor) {
    Manifest manifest = read_manifest(folder);
    const WrittenFile written = write_safetensors(folder + "/" + name, {{key, tensor}});
    manifest.files[name] = {written.bytes, written.crc32};
    test::write_bytes(folder + "/manifest.json", manifest_json(manifest));
    const std::vector<std::string> damage = verify_checkpoint(folder);
    EXPECT_EQ(damage.size(), 1u);
    return damage.empty() ? "" : damage[0];
  };
  EXPECT_HAS(replace("v", at::ones({4, 2}, at::kFloat)), "no tensor 'w'");
  EXPECT_HAS(replace("w", at::ones({2, 4}, at::kFloat)), "is F32 [2, 4]; the manifest says F32 [4, 2]");
  EXPECT_HAS(test::line_of<UserError>([&] {
               load_checkpoint(folder, {{"w", at::ones({4, 2}, at::kFloat)}});
             }),
             "is F32 [2, 4]; the manifest says F32 [4, 2]");
}

}  // namespace
}  // namespace loom
