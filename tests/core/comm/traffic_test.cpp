// The rule of names: which component and axis a collective belongs to.
#include "core/comm/traffic.h"

#include "tests/core/comm/values.h"

namespace loom {
namespace {

void expect_site(CommKind kind, const char* what, const char* component, CommAxis axis) {
  const CommSite site = site_of(kind, what);
  EXPECT_EQ(site.component, component) << what;
  EXPECT_EQ(site.axis, axis) << what << ": " << comm_axis_name(site.axis);
  EXPECT_EQ(site.kind, kind) << what;
}

TEST(Traffic, NamesTellComponentAndAxis) {
  expect_site(CommKind::all_gather, "backbone.blocks.3: weights", "backbone", CommAxis::shard);
  expect_site(CommKind::reduce_scatter, "encoders.image.embed: gradients", "encoders.image", CommAxis::shard);
  expect_site(CommKind::all_reduce, "connectors.image: gradients over replicas", "connectors.image",
              CommAxis::replicate);
  expect_site(CommKind::exchange, "backbone.blocks.0: attention 1 q, k, v", "backbone", CommAxis::sp);
  expect_site(CommKind::exchange, "bridge: encoders.image features", "encoders.image", CommAxis::bridge);
  expect_site(CommKind::all_reduce, "trainer: gradient norm", "", CommAxis::world);
  expect_site(CommKind::exchange, "data feed: contents", "", CommAxis::world);
  expect_site(CommKind::all_reduce, "backbones: weights", "", CommAxis::world);
}

TEST(Traffic, CountsByComponentAndAxisAddUp) {
  run_loopback(2, [](Communicator& comm) {
    const Tensor part = at::ones({4}), both = at::zeros({8});
    comm.all_gather("backbone.head: weights", {0, 1}, part, both).wait();
    comm.all_gather("encoders.image.embed: weights", {0, 1}, part, both).wait();
    comm.reduce_scatter_add("backbone.head: gradients", {0, 1}, both, part).wait();
    comm.all_reduce("trainer: norm", {0, 1}, part);
    int64_t calls = 0, bytes = 0;
    for (const auto& [site, count] : comm.traffic()) {
      calls += count.calls;
      bytes += count.bytes;
    }
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(bytes, comm.bytes_sent());
    const CommCount gathered = comm.traffic().at({"backbone", CommAxis::shard, CommKind::all_gather});
    EXPECT_EQ(gathered.calls, 1);
    EXPECT_EQ(gathered.bytes, 16);
    comm.reset_counts();
    EXPECT_TRUE(comm.traffic().empty());
  });
}

}  // namespace
}  // namespace loom
