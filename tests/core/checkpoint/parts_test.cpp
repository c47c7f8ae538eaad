// What ranks hold in parts becomes whole on rank 0, once, whatever the layout.
#include "core/checkpoint/parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/checkpoint/gather_tensors.h"
#include "tests/core/train/buffers.h"

namespace loom {
namespace {

using test::Buffers;

Tensor numbers(const std::vector<int64_t>& shape, double from) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return (at::arange(n, at::kDouble) + from).reshape(shape);
}

std::map<std::string, Tensor> by_name(const std::vector<NamedTensor>& tensors) {
  std::map<std::string, Tensor> out;
  for (const NamedTensor& tensor : tensors) {
    EXPECT_TRUE(tensor.box.size.empty()) << tensor.name;
    EXPECT_TRUE(out.emplace(tensor.name, tensor.tensor).second) << tensor.name << " twice";
  }
  return out;
}

TEST(Parts, BoxesOfAllRanksComeTogether) {
  // Columns and rows, two parts of one tensor on a rank, copies that do not count, and a scalar.
  const Tensor whole = numbers({4, 6}, 0), rows = numbers({5, 2}, 100);
  std::vector<NamedTensor> gathered;
  run_loopback(3, [&](Communicator& comm) {
    std::vector<NamedTensor> mine;
    if (comm.rank() == 0) {
      mine.push_back({"w", whole.slice(1, 0, 2), {4, 6}, Box{{0, 0}, {4, 2}}});
      mine.push_back({"rows", rows.clone().fill_(-1), {5, 2}, whole_box({5, 2}), false});
    }
    if (comm.rank() == 1) {
      mine.push_back({"w", whole.slice(1, 2, 6).slice(0, 0, 1), {4, 6}, Box{{0, 2}, {1, 4}}});
      mine.push_back({"w", whole.slice(1, 2, 6).slice(0, 3, 4), {4, 6}, Box{{3, 2}, {1, 4}}});
      mine.push_back({"rows", rows.slice(0, 0, 3), {5, 2}, Box{{0, 0}, {3, 2}}});
      mine.push_back({"count", at::scalar_tensor(7, at::kLong)});
    }
    if (comm.rank() == 2) {
      mine.push_back({"w", whole.slice(1, 2, 6).slice(0, 1, 3), {4, 6}, Box{{1, 2}, {2, 4}}});
      mine.push_back({"rows", rows.slice(0, 3, 5), {5, 2}, Box{{3, 0}, {2, 2}}});
      mine.push_back({"count", at::empty({0}, at::kLong), {}, Box{{0}, {0}}, false});
    }
    std::vector<NamedTensor> out = test::gather_tensors(comm, mine);
    if (comm.rank() == 0) {
      gathered = std::move(out);
    } else {
      EXPECT_TRUE(out.empty());
    }
  });
  const std::map<std::string, Tensor> found = by_name(gathered);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(at::equal(found.at("w"), whole));
  EXPECT_TRUE(at::equal(found.at("rows"), rows));
  EXPECT_EQ(found.at("count").item<int64_t>(), 7);
}

TEST(Parts, AHoleIsNoCheckpoint) {
  EXPECT_THROW(run_loopback(2,
                            [](Communicator& comm) {
                              const int64_t begin = comm.rank() == 0 ? 0 : 3;
                              test::gather_tensors(comm, {{"w", numbers({2, 2}, 0), {5, 2}, Box{{begin, 0}, {2, 2}}}});
                            }),
               InternalError);
}

TEST(Parts, OneRankSavesWhatItHasWithoutACopy) {
  const Tensor whole = numbers({4, 6}, 0);
  const std::vector<NamedTensor> out = test::gather_tensors(alone(), {{"w", whole, {4, 6}, whole_box({4, 6})}});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].tensor.const_data_ptr(), whole.const_data_ptr());
}

// Saved under one layout and loaded under another, by way of files.
TEST(Parts, EveryLayoutReadsWhatEveryOtherWrote) {
  const std::vector<std::pair<int, int>> layouts = {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {4, 4}};
  for (const auto& [world, shard] : layouts) {
    const test::TempFolder run;
    std::string folder;
    std::map<std::string, Tensor> saved;
    run_loopback(world, [&, shard = shard](Communicator& comm) {
      Buffers buffers(at::kFloat, test::sharding_on(comm, shard));
      std::vector<NamedTensor> mine;
      double from = 0;
      for (UnitBuffer* buffer : buffers.all()) {
        for (const BufferEntry& param : buffer->params()) from += static_cast<double>(param.numel);
        for (size_t e = 0; e < buffer->entries().size(); ++e) {
          const BufferEntry& entry = buffer->entries()[e];
          const std::vector<int64_t> shape = entry.global_shape.empty() ? entry.shape : entry.global_shape;
          buffer->master_of(e).copy_(test::part_of(numbers(shape, from), entry));
        }
        append_parts(*buffer, buffer->master(), "", mine);
      }
      const std::vector<NamedTensor> whole = test::gather_tensors(comm, mine);
      if (comm.rank() != 0) return;
      saved = by_name(whole);
      folder = save_checkpoint(run.path(), 1, whole);
    });
    ASSERT_EQ(saved.size(), 6u);
    for (const auto& [other_world, other_shard] : layouts) {
      run_loopback(other_world, [&, other_shard = other_shard](Communicator& comm) {
        const Buffers buffers(at::kFloat, test::sharding_on(comm, other_shard));
        std::vector<NamedTensor> mine;
        for (UnitBuffer* buffer : buffers.all()) append_parts(*buffer, buffer->master(), "", mine);
        load_checkpoint(folder, mine);
        for (UnitBuffer* buffer : buffers.all()) {
          for (size_t e = 0; e < buffer->entries().size(); ++e) {
            const BufferEntry& entry = buffer->entries()[e];
            EXPECT_TRUE(at::equal(buffer->master_of(e), test::part_of(saved.at(entry.name), entry))) << entry.name;
          }
        }
      });
    }
  }
}

TEST(Parts, AllRanksFindTheSameMistake) {
  const test::TempFolder run;
  const std::string folder = save_checkpoint(run.path(), 1, {{"w", numbers({4, 2}, 0)}, {"v", numbers({2}, 0)}});
  std::vector<std::string> words(2);
  run_loopback(2, [&](Communicator& comm) {
    Sharding sharding = test::sharding_on(comm, 2);
    const UnitBuffer buffer("unit", {test::entry("w", {4, 2}), test::entry("v", {3})}, {true, at::kDouble, at::kDouble},
                            sharding);
    std::vector<NamedTensor> mine;
    append_parts(buffer, at::zeros({buffer.numel()}, at::kDouble), "", mine);
    words[static_cast<size_t>(comm.rank())] = test::line_of<UserError>([&] { load_checkpoint(folder, mine); });
  });
  EXPECT_EQ(words[0], words[1]);
  EXPECT_HAS(words[0], "tensor 'v' is F64 [2]; this model has F64 [3]");
}

}  // namespace
}  // namespace loom
