// Weights and gradients over ranks: what is gathered is what all ranks own together, tensors that were saved stay
// valid, and gradients are sums over every rank, once.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "core/parallel/unit_buffer.h"

namespace loom::test {
namespace {

std::vector<BufferEntry> params() {
  std::vector<BufferEntry> out;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes{
      {"a.weight", {5, 3}}, {"a.bias", {5}}, {"b.weight", {7, 2, 2}}, {"b.scale", {9}}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    BufferEntry entry;
    entry.param = static_cast<int>(i);
    entry.name = shapes[i].first;
    entry.shape = shapes[i].second;
    entry.numel = 1;
    for (const int64_t size : entry.shape) entry.numel *= size;
    out.push_back(entry);
  }
  return out;
}

Sharding sharding(Communicator& comm, int shard) {
  return {&comm, block_group(comm.rank(), comm.world(), shard), stride_group(comm.rank(), comm.world(), shard)};
}

// Element j of parameter i is 100 i + j (+ shift).
void fill(UnitBuffer& buffer, double shift = 0) {
  for (size_t e = 0; e < buffer.entries().size(); ++e) {
    const BufferEntry& entry = buffer.entries()[e];
    const int64_t first = first_element(entry.box, entry.global_shape);
    buffer.master_of(e).copy_(at::arange(first, first + entry.numel, at::kDouble).view(entry.shape) +
                              (100.0 * entry.param + shift));
  }
  buffer.master_written();
}

void expect_whole(const UnitBuffer& buffer, double shift = 0) {
  for (size_t p = 0; p < buffer.params().size(); ++p) {
    const Tensor& weight = buffer.weight(p);
    const Tensor expected =
        (at::arange(weight.numel(), at::kDouble).view(weight.sizes()) + (100.0 * static_cast<double>(p) + shift))
            .to(weight.scalar_type());
    EXPECT_TRUE(at::equal(weight.detach(), expected)) << buffer.params()[p].name;
  }
}

template <class Body>
void on_every_layout(const Body& body) {
  for (const int world : {1, 2, 4}) {
    for (int shard = 1; shard <= world; shard *= 2) run_loopback(world, [&](Communicator& comm) { body(comm, shard); });
  }
}

TEST(ShardedBuffer, EveryElementIsOwnedOncePerCopy) {
  on_every_layout([](Communicator& comm, int shard) {
    UnitBuffer buffer("unit", params(), {.master = at::kDouble, .compute = at::kDouble}, sharding(comm, shard));
    double owned = 0;
    for (const BufferEntry& entry : buffer.entries()) {
      EXPECT_EQ(entry.numel, entry.box.numel());
      EXPECT_LE(entry.offset + entry.numel, buffer.numel());
      owned += static_cast<double>(entry.numel);
    }
    const Tensor sum = at::full({1}, owned, at::kDouble);
    comm.all_reduce("owned", world_group(comm.world()), sum);
    EXPECT_EQ(sum.item<double>(), (15 + 5 + 28 + 9) * comm.world() / shard);
    EXPECT_EQ(buffer.counted(), comm.rank() < shard);
  });
}

TEST(ShardedBuffer, GatherNestsPrefetchesAndFollowsGenerations) {
  on_every_layout([](Communicator& comm, int shard) {
    for (const at::ScalarType compute : {at::kDouble, at::kFloat}) {
      UnitBuffer buffer("unit", params(), {.master = at::kDouble, .compute = compute}, sharding(comm, shard));
      SlabPool pool(std::max<int64_t>(buffer.slab_bytes(), 64));
      fill(buffer);
      buffer.gather(pool);
      expect_whole(buffer);
      buffer.gather(pool);  // a second user
      buffer.release(pool);
      expect_whole(buffer);
      buffer.release(pool);
      EXPECT_FALSE(buffer.resident());
      EXPECT_EQ(pool.in_use(), 0);
      const uint64_t before = buffer.generation();
      fill(buffer, 0.5);
      EXPECT_GT(buffer.generation(), before);
      // Started ahead, then another user comes and goes before the one that it was started for.
      buffer.start_gather(pool);
      buffer.start_gather(pool);
      buffer.gather(pool);
      expect_whole(buffer, 0.5);
      buffer.release(pool);
      buffer.gather(pool);
      expect_whole(buffer, 0.5);
      buffer.start_gather(pool);  // resident already
      buffer.gather(pool);
      buffer.release(pool);
      buffer.release(pool);
      EXPECT_EQ(pool.in_use(), 0);
      EXPECT_THROW(buffer.release(pool), InternalError);
    }
  });
}

TEST(ShardedBuffer, SavedTensorsAreValidInAnotherSlab) {
  run_loopback(2, [](Communicator& comm) {
    UnitBuffer buffer("unit", params(), {.master = at::kDouble, .compute = at::kDouble}, sharding(comm, 2));
    SlabPool pool(buffer.slab_bytes());
    fill(buffer);
    buffer.gather(pool);
    const Tensor x = at::ones({2, 3}, at::kDouble).requires_grad_();
    const Tensor y = x.matmul(buffer.weight(0).t()).sum();
    buffer.release(pool);
    const Tensor other = pool.acquire(8);  // the slab that it had
    buffer.gather(pool);
    y.backward();
    buffer.release(pool);
    pool.release(other);
    EXPECT_TRUE(at::equal(x.grad(), at::tensor({30., 35., 40.}, at::kDouble).expand({2, 3})));
  });
}

TEST(ShardedBuffer, GradientsAreSumsOverAllRanksAndPasses) {
  on_every_layout([](Communicator& comm, int shard) {
    UnitBuffer buffer("unit", params(), {.master = at::kDouble, .compute = at::kDouble}, sharding(comm, shard));
    SlabPool pool(std::max<int64_t>(buffer.slab_bytes(), 64));
    const auto mine = [](int rank, int pass, size_t p, at::IntArrayRef sizes) {
      at::Tensor out = at::empty(sizes, at::kDouble);
      double* to = out.data_ptr<double>();
      for (int64_t i = 0; i < out.numel(); ++i)
        to[i] = std::sin(static_cast<double>(1 + i) * (1.0 + rank) + 10.0 * pass + 3.0 * static_cast<double>(p));
      return out;
    };
    for (int pass = 0; pass < 3; ++pass) {
      // Rank 1 has no rows in pass 1; parameter 0 is used twice.
      if (!(comm.rank() == 1 && pass == 1)) {
        for (size_t p = 0; p < 4; ++p)
          buffer.add_gradient(p, mine(comm.rank(), pass, p, buffer.params()[p].shape), pool);
        buffer.add_gradient(0, mine(comm.rank(), pass, 0, buffer.params()[0].shape), pool);
      }
      buffer.reduce_gradient(pool);
      if (pass == 1) continue;  // the next one waits for it
      buffer.finish_reduce();
      EXPECT_EQ(pool.in_use(), 0);
    }
    buffer.finish_gradient();
    for (size_t e = 0; e < buffer.entries().size(); ++e) {
      const BufferEntry& entry = buffer.entries()[e];
      const auto p = static_cast<size_t>(entry.param);
      at::Tensor expected = at::zeros(entry.global_shape, at::kDouble);
      for (int rank = 0; rank < comm.world(); ++rank) {
        for (int pass = 0; pass < 3; ++pass) {
          if (rank == 1 && pass == 1) continue;
          expected += mine(rank, pass, p, entry.global_shape) * (p == 0 ? 2.0 : 1.0);
        }
      }
      for (size_t d = 0; d < entry.box.size.size(); ++d)
        expected = expected.narrow(static_cast<int64_t>(d), entry.box.offset[d], entry.box.size[d]);
      EXPECT_LE((buffer.gradient_of(e) - expected).abs().max().item<double>(), 1e-12) << entry.name;
    }
  });
}

// bf16 weights, fp32 masters and sums: 256 + 1 is 257, which bf16 cannot hold.
TEST(ShardedBuffer, SumsAreInTheMastersType) {
  for (const int shard : {1, 2}) {
    run_loopback(2, [&](Communicator& comm) {
      UnitBuffer buffer("unit", params(), {.master = at::kFloat, .compute = at::kBFloat16}, sharding(comm, shard));
      SlabPool pool(buffer.slab_bytes());
      buffer.gather(pool);
      EXPECT_EQ(buffer.weight(0).scalar_type(), at::kBFloat16);
      buffer.release(pool);
      buffer.add_gradient(3, at::full({9}, comm.rank() == 0 ? 256.0 : 1.0, at::kBFloat16), pool);
      buffer.reduce_gradient(pool);
      buffer.finish_gradient();
      for (size_t e = 0; e < buffer.entries().size(); ++e) {
        if (buffer.entries()[e].param == 3) {
          EXPECT_TRUE(at::equal(buffer.gradient_of(e), at::full_like(buffer.gradient_of(e), 257.0)));
        }
      }
    });
  }
}

TEST(ShardedBuffer, BytesAreThoseOfTheFormulas) {
  run_loopback(4, [](Communicator& comm) {
    UnitBuffer buffer("unit", params(), {.master = at::kFloat, .compute = at::kFloat}, sharding(comm, 4));
    SlabPool pool(buffer.slab_bytes());
    buffer.gather(pool);
    buffer.release(pool);
    buffer.reduce_gradient(pool);
    buffer.finish_reduce();
    const int64_t part = buffer.numel() * 4;
    EXPECT_EQ(comm.counts().at(CommKind::all_gather).bytes, 3 * part);
    EXPECT_EQ(comm.counts().at(CommKind::reduce_scatter).bytes, 3 * part);
  });
}

TEST(ShardedBuffer, AnAdoptedTensorIsReboundToGatheredMemory) {
  run_loopback(2, [](Communicator& comm) {
    std::vector<BufferEntry> entries = params();
    Tensor adopted = (at::arange(15, at::kFloat).view({5, 3})).requires_grad_();
    entries[0].adopted = adopted;
    UnitBuffer buffer("unit", entries, {}, sharding(comm, 2));
    SlabPool pool(buffer.slab_bytes());
    buffer.gather(pool);
    EXPECT_TRUE(at::equal(adopted.detach(), at::arange(15, at::kFloat).view({5, 3})));
    EXPECT_EQ(adopted.data_ptr(), buffer.weight(0).data_ptr());
    buffer.release(pool);
  });
}

}  // namespace
}  // namespace loom::test
