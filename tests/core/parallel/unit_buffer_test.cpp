// What a buffer promises beside sums and gathers: boxes that tile every parameter, the path without copies, frozen
// buffers, alignment, and a gather that was started before the weights changed.
#include "core/parallel/unit_buffer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/comm/loopback.h"

namespace loom::test {
namespace {

BufferEntry parameter(int index, std::vector<int64_t> shape) {
  BufferEntry out;
  out.param = index;
  out.name = "unit.p" + std::to_string(index);
  out.numel = 1;
  for (const int64_t size : shape) out.numel *= size;
  out.shape = std::move(shape);
  return out;
}

std::vector<BufferEntry> random_parameters(uint64_t seed) {
  const Philox random({seed, Purpose::sample});
  uint64_t at = 0;
  std::vector<BufferEntry> out;
  for (uint64_t n = 1 + random.below(6, at++); n > 0; --n) {
    std::vector<int64_t> shape;
    for (uint64_t d = random.below(4, at++); d > 0; --d)
      shape.push_back(1 + static_cast<int64_t>(random.below(12, at++)));
    out.push_back(parameter(static_cast<int>(out.size()), shape));
  }
  return out;
}

Sharding over_all(Communicator& comm) { return {&comm, world_group(comm.world()), {comm.rank()}}; }

TEST(UnitBuffer, BoxesOfAllRanksTileEveryParameter) {
  for (int world = 1; world <= 8; ++world) {
    constexpr uint64_t kUnits = 30;
    std::mutex mutex;
    std::map<std::pair<uint64_t, int>, std::vector<Box>> owned;
    run_loopback(world, [&](Communicator& comm) {
      for (uint64_t seed = 0; seed < kUnits; ++seed) {
        UnitBuffer buffer("unit", random_parameters(seed), {}, over_all(comm));
        int64_t used = 0;
        for (const BufferEntry& param : buffer.params()) {
          used += param.numel;
          EXPECT_EQ(param.offset % 16, 0);
        }
        EXPECT_EQ(buffer.padding(), buffer.numel() * world - used);
        for (size_t e = 0; e < buffer.entries().size(); ++e) {
          const BufferEntry& entry = buffer.entries()[e];
          EXPECT_EQ(entry.shape, entry.box.size);
          EXPECT_EQ(entry.numel, entry.box.numel());
          EXPECT_EQ(entry.global_shape, buffer.params().at(static_cast<size_t>(entry.param)).shape);
          EXPECT_EQ(buffer.master_of(e).sizes(), at::IntArrayRef(entry.shape));
          const std::lock_guard lock(mutex);
          owned[{seed, entry.param}].push_back(entry.box);
        }
      }
    });
    for (uint64_t seed = 0; seed < kUnits; ++seed) {
      for (const BufferEntry& param : random_parameters(seed)) {
        EXPECT_TRUE(tiles(owned[{seed, param.param}], whole_box(param.shape))) << world << " ranks, seed " << seed;
      }
    }
  }
}

TEST(UnitBuffer, AloneInOneTypeNothingIsCopied) {
  UnitBuffer buffer("unit", {parameter(0, {4, 3}), parameter(1, {5})}, {});
  EXPECT_TRUE(buffer.in_place());
  EXPECT_FALSE(buffer.sharded());
  EXPECT_TRUE(buffer.counted());
  EXPECT_EQ(buffer.slab_bytes(), 0);
  SlabPool pool(0);
  buffer.start_gather(pool);
  buffer.gather(pool);
  EXPECT_TRUE(buffer.resident());
  EXPECT_EQ(buffer.weight(1).data_ptr(), buffer.master_of(1).data_ptr());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.weight(1).data_ptr()) % 64, 0u);
  buffer.add_gradient(1, at::ones({5}), pool);
  buffer.reduce_gradient(pool);
  buffer.add_gradient(1, at::ones({5}), pool);
  buffer.reduce_gradient(pool);
  buffer.finish_gradient();
  EXPECT_TRUE(buffer.gradient_of(1).equal(at::full({5}, 2.f)));
  buffer.release(pool);
  EXPECT_FALSE(buffer.resident());
  EXPECT_EQ(pool.slabs(), 0);
}

// Nothing is cleared ahead, yet nothing of the step before is left.
TEST(UnitBuffer, TheFirstContributionOfAStepOverwrites) {
  UnitBuffer buffer("unit", {parameter(0, {4, 3}), parameter(1, {5})}, {.master = at::kDouble, .compute = at::kFloat});
  SlabPool pool(buffer.slab_bytes());
  for (int step = 0; step < 3; ++step) {
    buffer.zero_gradient();
    for (int pass = 0; pass < 2; ++pass) {
      const GradientPlace place = buffer.open_gradient(1, pool);
      EXPECT_EQ(place.fresh, pass == 0);
      EXPECT_EQ(place.sum.sizes(), (std::vector<int64_t>{5}));
      EXPECT_EQ(place.sum.scalar_type(), at::kDouble);
      if (place.fresh) {
        place.sum.fill_(1);
      } else {
        place.sum.add_(1);
      }
      buffer.add_gradient(1, at::ones({5}), pool);
      if (step == 1) buffer.add_gradient(0, at::ones({3, 4}).t(), pool);
      buffer.reduce_gradient(pool);
    }
    buffer.finish_gradient();
    EXPECT_TRUE(buffer.gradient_of(1).equal(at::full({5}, 4.0, at::kDouble)));
    EXPECT_TRUE(buffer.gradient_of(0).equal(at::full({4, 3}, step == 1 ? 2.0 : 0.0, at::kDouble)));
    EXPECT_EQ(buffer.gradient().abs().sum().item<double>(), 5 * 4 + (step == 1 ? 12 * 2 : 0));
  }
}

TEST(UnitBuffer, APassOverRanksStartsFromNothing) {
  run_loopback(2, [](Communicator& comm) {
    UnitBuffer buffer("unit", {parameter(0, {4, 3}), parameter(1, {5})}, {.master = at::kDouble}, over_all(comm));
    SlabPool pool(buffer.slab_bytes());
    Tensor garbage = pool.acquire(buffer.slab_bytes());
    garbage.fill_(127);
    pool.release(std::move(garbage));
    for (int step = 0; step < 2; ++step) {
      buffer.zero_gradient();
      for (int pass = 0; pass < 2; ++pass) {
        if (comm.rank() == 0) {
          const GradientPlace place = buffer.open_gradient(0, pool);
          EXPECT_TRUE(place.fresh);
          place.sum.fill_(3);
          EXPECT_FALSE(buffer.open_gradient(0, pool).fresh);
        }
        buffer.reduce_gradient(pool);
      }
      buffer.finish_reduce();
      EXPECT_EQ(pool.in_use(), 0);
      const Tensor sum = buffer.gradient().sum().view({1});
      comm.all_reduce("sum", world_group(2), sum);
      EXPECT_EQ(sum.item<double>(), 12 * 3 * 2);
    }
  });
}

TEST(UnitBuffer, TheCopyingPathHoldsTheSameBits) {
  UnitBuffer copied("unit", {parameter(0, {4, 3})}, {.always_slab = true});
  EXPECT_FALSE(copied.in_place());
  SlabPool pool(copied.slab_bytes());
  copied.master_of(0).copy_(at::arange(12, at::kFloat).view({4, 3}));
  copied.master_written();
  copied.gather(pool);
  EXPECT_TRUE(copied.weight(0).detach().equal(copied.master_of(0)));
  EXPECT_NE(copied.weight(0).data_ptr(), copied.master_of(0).data_ptr());
  copied.release(pool);
}

TEST(UnitBuffer, FrozenBuffersHaveNoGradient) {
  run_loopback(2, [](Communicator& comm) {
    UnitBuffer buffer("unit", {parameter(0, {4, 3})}, {.trainable = false, .compute = at::kBFloat16}, over_all(comm));
    EXPECT_EQ(buffer.slab_bytes(), 2 * buffer.numel() * 2);  // no room for gradients
    EXPECT_FALSE(buffer.gradient().defined());
    EXPECT_FALSE(buffer.weight(0).requires_grad());
    SlabPool pool(buffer.slab_bytes());
    EXPECT_THROW(buffer.add_gradient(0, at::ones({4, 3}), pool), InternalError);
  });
}

TEST(UnitBuffer, GradientsNeedRoomInTheMastersType) {
  run_loopback(2, [](Communicator& comm) {
    UnitBuffer buffer("unit", {parameter(0, {4, 3})}, {.compute = at::kBFloat16}, over_all(comm));
    EXPECT_EQ(buffer.slab_bytes(), 2 * buffer.numel() * 4);
    UnitBuffer wide("unit", {parameter(0, {4, 3})}, {.master = at::kFloat, .compute = at::kDouble}, over_all(comm));
    EXPECT_EQ(wide.slab_bytes(), 2 * wide.numel() * 8);
  });
}

TEST(UnitBuffer, AGatherStartedBeforeTheWeightsChangedBringsTheNewOnes) {
  for (const int world : {1, 2, 4}) {
    run_loopback(world, [](Communicator& comm) {
      UnitBuffer buffer("unit", {parameter(0, {8, 16})}, {.always_slab = true}, over_all(comm));
      SlabPool pool(buffer.slab_bytes());
      buffer.start_gather(pool);
      buffer.master().fill_(3);
      buffer.master_written();
      buffer.gather(pool);
      EXPECT_TRUE(buffer.weight(0).detach().eq(3).all().item<bool>());
      EXPECT_EQ(pool.slabs(), 1);
      buffer.release(pool);
      EXPECT_EQ(pool.in_use(), 0);
    });
  }
}

TEST(UnitBuffer, AStartWhileResidentSurvivesTheRelease) {
  run_loopback(2, [](Communicator& comm) {
    UnitBuffer buffer("unit", {parameter(0, {8, 16})}, {}, over_all(comm));
    SlabPool pool(buffer.slab_bytes());
    buffer.master().fill_(2);
    buffer.master_written();
    buffer.gather(pool);
    buffer.start_gather(pool);
    buffer.release(pool);
    buffer.gather(pool);
    EXPECT_TRUE(buffer.weight(0).detach().eq(2).all().item<bool>());
    buffer.release(pool);
    EXPECT_EQ(pool.in_use(), 0);
  });
}

TEST(UnitBuffer, ARankOutsideTheGroupIsRefused) {
  run_loopback(2, [](Communicator& comm) {
    if (comm.rank() == 0) {
      EXPECT_THROW(UnitBuffer("unit", {parameter(0, {4})}, {}, Sharding{&comm, {1}, {}}), InternalError);
    }
  });
}

}  // namespace
}  // namespace loom::test
