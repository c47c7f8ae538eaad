// Saved under one layout, loaded under another: the same bits, and no byte of a file is read twice for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "core/comm/loopback.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/checkpoint/layouts.h"

namespace loom {
namespace {

using test::Layout;
using test::RankState;

std::string text_of(const Layout& layout) { return concat("world ", layout.world, " shard ", layout.shard); }

TEST(CheckpointLayouts, EveryLayoutReadsWhatEveryOtherWrote) {
  int64_t round = 0;
  for (const Layout& from : test::all_layouts()) {
    const test::TempFolder run;
    ++round;
    run_loopback(from.world, [&](Communicator& comm) {
      RankState state(comm, from);
      state.fill(round);
      CheckpointWriter writer(comm, run.path(), {});
      writer.save(round, state.tensors(), R"({"of":"rank 0"})");
      writer.finish();
    });
    const std::string folder = step_folder(run.path(), round);
    for (const Layout& to : test::all_layouts()) {
      std::vector<LoadStats> stats(static_cast<size_t>(to.world));
      std::vector<int64_t> wrong(static_cast<size_t>(to.world), -1);
      run_loopback(to.world, [&](Communicator& comm) {
        const size_t self = static_cast<size_t>(comm.rank());
        RankState state(comm, to);
        const Manifest manifest = load_checkpoint(comm, folder, state.tensors(), {.stats = &stats[self]});
        EXPECT_EQ(manifest.world, from.world);
        EXPECT_EQ(manifest.extra, R"({"of":"rank 0"})");
        wrong[self] = state.wrong(round);
      });
      EXPECT_EQ(wrong, std::vector<int64_t>(wrong.size(), 0)) << text_of(from) << " to " << text_of(to);
      int64_t read = 0, received = 0, verified = 0;
      for (const LoadStats& mine : stats) {
        read += mine.bytes_read;
        received += mine.bytes_received;
        verified += mine.bytes_verified;
      }
      EXPECT_EQ(read, test::kStateBytes) << text_of(from) << " to " << text_of(to);
      // Every copy but the one that was read came from a peer; the counter is on all ranks, the rest on each copy's.
      const int64_t copies = to.world / to.shard;
      EXPECT_EQ(received, (copies - 1) * (test::kStateBytes - 8) + (to.world - 1) * 8) << text_of(to);
      int64_t files = 0;
      for (const auto& [name, file] : read_manifest(folder).files) files += file.bytes;
      EXPECT_EQ(verified, files) << "each file once";
    }
  }
}

TEST(CheckpointLayouts, RanksWithCopiesShareTheReading) {
  const test::TempFolder run;
  run_loopback(2, [&](Communicator& comm) {
    RankState state(comm, {2, 2});
    state.fill(1);
    CheckpointWriter(comm, run.path(), {}).save(1, state.tensors());
  });
  std::vector<LoadStats> stats(4);
  run_loopback(4, [&](Communicator& comm) {
    RankState state(comm, {4, 1});
    load_checkpoint(comm, step_folder(run.path(), 1), state.tensors(),
                    {.verify = false, .stats = &stats[static_cast<size_t>(comm.rank())]});
    EXPECT_EQ(state.wrong(1), 0);
  });
  for (const LoadStats& mine : stats) {
    EXPECT_EQ(mine.bytes_verified, 0);
    EXPECT_LE(std::abs(mine.bytes_read - test::kStateBytes / 4), test::kStateBytes / 20) << mine.bytes_read;
  }
}

TEST(CheckpointLayouts, ACopyIsWrittenOnceAndEvenly) {
  for (const Layout& on : test::all_layouts()) {
    const test::TempFolder run;
    std::vector<int64_t> planned;
    run_loopback(on.world, [&](Communicator& comm) {
      RankState state(comm, on);
      state.fill(1);
      CheckpointWriter writer(comm, run.path(), {.async = false});
      writer.save(1, state.tensors());
      EXPECT_EQ(writer.stats().snapshot_bytes, 0);  // written from where it lies
      comm.barrier("test: saved", world_group(comm.world()));
      if (comm.rank() == 0) planned = writer.plan().bytes;
    });
    EXPECT_EQ(std::accumulate(planned.begin(), planned.end(), int64_t{0}), test::kStateBytes) << text_of(on);
    const Manifest manifest = read_manifest(step_folder(run.path(), 1));
    int64_t writers = 0;
    for (const int64_t bytes : planned) writers += bytes > 0 ? 1 : 0;
    EXPECT_EQ(static_cast<int64_t>(manifest.files.size()), writers);
    if (on.world == 3 && on.shard == 1) {  // three equal large tensors
      const double mean = static_cast<double>(test::kStateBytes) / on.world;
      EXPECT_LE(static_cast<double>(*std::max_element(planned.begin(), planned.end())), 1.1 * mean);
    }
  }
}

TEST(CheckpointLayouts, AMistakeOnOneRankIsToldOnAllAndChangesNothing) {
  const test::TempFolder run;
  run_loopback(2, [&](Communicator& comm) {
    RankState state(comm, {2, 2});
    state.fill(1);
    CheckpointWriter(comm, run.path(), {}).save(1, state.tensors());
  });
  const std::string folder = step_folder(run.path(), 1);
  std::vector<std::string> words(4);
  const auto load = [&](int wrong_on) {
    run_loopback(4, [&](Communicator& comm) {
      RankState state(comm, {4, 2});
      std::vector<NamedTensor> wanted = state.tensors();
      if (comm.rank() == wrong_on) wanted.back().name = "backbone.countre";
      words[static_cast<size_t>(comm.rank())] =
          test::line_of<UserError>([&] { load_checkpoint(comm, folder, wanted); });
      state.fill(0);
      EXPECT_EQ(state.wrong(0), 0);
    });
    for (const std::string& line : words) EXPECT_EQ(line, words[0]);
  };
  load(2);
  EXPECT_HAS(words[0], "rank 2: ");
  EXPECT_HAS(words[0], "has no tensor 'backbone.countre'");
  EXPECT_HAS(words[0], "did you mean 'backbone.counter'?");

  // Rank 1 verifies the second file.
  const std::string file = folder + "/rank-00001.safetensors";
  std::string bytes = test::read_bytes(file);
  bytes[bytes.size() / 2] ^= 4;
  test::write_bytes(file, bytes);
  load(-1);
  EXPECT_HAS(words[3], file);
  EXPECT_HAS(words[3], "checksum");
  test::write_bytes(file, bytes.substr(0, bytes.size() - 5));
  load(-1);
  EXPECT_HAS(words[3], file + ": truncated");
  std::filesystem::remove(file);
  load(-1);
  EXPECT_HAS(words[0], file + ": missing");
  std::filesystem::remove_all(folder);
  load(-1);
  EXPECT_EQ(words[0], folder + ": no such checkpoint folder");
}

}  // namespace
}  // namespace loom
