// A dry rank counts what a real one sends, whatever its tensors are made of, and invents nothing.
#include "core/comm/dry.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;

// Every collective, on groups of several shapes; sizes above and below the border at which all-reduce changes its way.
void talk(Communicator& comm, c10::Device device) {
  const RankGroup everyone = world_group(comm.world());
  const auto numbers = [&](int64_t n) { return at::ones({n}, at::TensorOptions(at::kFloat).device(device)); };
  const int shard = comm.world() % 2 == 0 ? 2 : 1;
  for (const RankGroup& group : {everyone, block_group(comm.rank(), comm.world(), shard),
                                 stride_group(comm.rank(), comm.world(), shard), RankGroup{comm.rank()}}) {
    const auto size = static_cast<int64_t>(group.size());
    const Tensor all = numbers(7 * size);
    comm.all_gather("backbone.head: weights", group, numbers(7), all).wait();
    comm.all_gather("encoders.image.embed: weights", group, all.narrow(0, 7 * index_in(group, comm.rank()), 7), all)
        .wait();
    comm.reduce_scatter_add("backbone.head: gradients", group, numbers(5 * size), numbers(5)).wait();
    comm.all_reduce("backbone.head: gradients over replicas", group, numbers(3));
    comm.all_reduce("backbone.head: gradients over replicas", group, numbers(40'001));
    comm.barrier("checkpoint: on disk", group);
    comm.broadcast("data feed: verdicts", group, group.back(), comm.rank() == group.back() ? "nine char" : "");
  }
  std::vector<Message> sends, receives;
  for (const int peer : everyone) {
    if (peer != comm.rank()) sends.push_back({peer, numbers(1 + comm.rank())});
    if (peer != comm.rank()) receives.push_back({peer, numbers(1 + peer)});
  }
  comm.exchange("bridge: connectors.image embeddings", sends, receives).wait();
  comm.exchange("backbone.blocks.0: attention q, k, v", sends, receives).wait();
}

void expect_same(const Traffic& real, const Traffic& dry, const std::string& where) {
  ASSERT_EQ(real.size(), dry.size()) << where;
  for (const auto& [site, count] : real) {
    const auto found = dry.find(site);
    ASSERT_NE(found, dry.end()) << where;
    EXPECT_EQ(found->second.calls, count.calls) << where << " " << site.component << " " << comm_kind_name(site.kind);
    EXPECT_EQ(found->second.bytes, count.bytes) << where << " " << site.component << " " << comm_kind_name(site.kind);
  }
}

TEST(DryCommunicator, CountsWhatRealRanksSend) {
  for (const int world : {1, 2, 3, 4, 6}) {
    std::vector<Traffic> real(static_cast<size_t>(world));
    std::vector<int64_t> sent(real.size());
    run_loopback(world, [&](Communicator& comm) {
      talk(comm, at::kCPU);
      real[static_cast<size_t>(comm.rank())] = comm.traffic();
      sent[static_cast<size_t>(comm.rank())] = comm.bytes_sent();
    });
    for (int rank = 0; rank < world; ++rank) {
      for (const c10::DeviceType device : {at::kCPU, at::kMeta}) {
        const std::string where = concat("rank ", rank, " of ", world, device == at::kCPU ? "" : " without memory");
        DryCommunicator dry(rank, world);
        talk(dry, c10::Device(device));
        expect_same(real[static_cast<size_t>(rank)], dry.traffic(), where);
        EXPECT_EQ(dry.bytes_sent(), sent[static_cast<size_t>(rank)]) << where;
        dry.reset_counts();
        EXPECT_TRUE(dry.traffic().empty() && dry.counts().empty());
      }
    }
  }
}

TEST(DryCommunicator, WhatArrivesIsZero) {
  DryCommunicator comm(1, 3);
  const RankGroup everyone = world_group(3);
  const Tensor all = at::full({6}, 9.0), mine = at::full({2}, 4.0);
  comm.all_gather("weights", everyone, mine, all).wait();
  EXPECT_TRUE(at::equal(all, at::tensor({0.0, 0.0, 4.0, 4.0, 0.0, 0.0})));
  const Tensor few = at::full({3}, 5.0, at::kDouble), many = at::full({30'000}, 5.0, at::kDouble);
  comm.all_reduce("statistics", everyone, few);
  EXPECT_TRUE(at::equal(few, at::full({3}, 5.0, at::kDouble)));
  comm.all_reduce("gradients over replicas", everyone, many);
  EXPECT_TRUE(at::equal(many.narrow(0, 10'000, 10'000), at::full({10'000}, 5.0, at::kDouble)));
  EXPECT_EQ(many.sum().item<double>(), 50'000);
  const Tensor arrived = at::full({4}, 7.0);
  comm.exchange("rows", {{0, mine}}, {{2, arrived}}).wait();
  EXPECT_TRUE(at::equal(arrived, at::zeros({4})));
  EXPECT_EQ(comm.broadcast("names", everyone, 1, "own"), "own");
  EXPECT_EQ(comm.broadcast("names", everyone, 0, "not the root's"), "");
}

TEST(DryCommunicator, SumsAreThisRanksOwn) {
  DryCommunicator comm(2, 4);
  const Tensor in = at::arange(8, at::kFloat), sum = at::full({2}, 10.0F);
  comm.reduce_scatter_add("gradients", world_group(4), in, sum).wait();
  EXPECT_TRUE(at::equal(sum, at::tensor({14.0F, 15.0F})));
}

TEST(DryCommunicator, ASiblingIsTheSameRankWithCountsOfItsOwn) {
  DryCommunicator comm(2, 5);
  const std::unique_ptr<Communicator> other = comm.sibling("checkpoint");
  EXPECT_EQ(other->rank(), 2);
  EXPECT_EQ(other->world(), 5);
  other->all_reduce("x", world_group(5), at::ones({2}));
  EXPECT_EQ(other->bytes_sent(), 4 * 2 * 4);
  EXPECT_EQ(comm.bytes_sent(), 0);
  const ScopedTimeout patience(comm, 3);
  EXPECT_EQ(comm.timeout(), 3);
}

TEST(DryCommunicator, ARankLiesInsideItsWorld) {
  EXPECT_NE(message_of<InternalError>([] { const DryCommunicator comm(3, 3); }).find("rank 3 of 3"), std::string::npos);
  EXPECT_NE(message_of<InternalError>([] { const DryCommunicator comm(-1, 3); }).find("rank -1"), std::string::npos);
}

}  // namespace
}  // namespace loom
