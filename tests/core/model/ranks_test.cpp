// What the tape does on several ranks beside computing: the next unit's weights are under way while a unit runs, a rank
// without rows takes part in everything but the running, and held weights need no communication.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "core/model/tape.h"
#include "core/nn/linear.h"

namespace loom::test {
namespace {

constexpr int kUnits = 3;
constexpr int64_t kColumns = 4;

// A chain of linear units that notes how many gathers had been started when each of them ran.
class Chain : public Component {
 public:
  Chain(const Declarer& d, const Communicator& comm, bool first_reads) : comm_(comm) {
    for (int i = 0; i < kUnits; ++i) {
      UnitDecl unit;
      unit.name = concat("unit.", i);
      unit.backward_reads_weights = first_reads || i > 0;
      unit.inputs = unit.outputs = {{"hidden", kColumns, "", false}};
      linears_.emplace_back(d.unit(unit), kColumns, kColumns);
    }
  }
  void run(int unit, Streams& s, UnitContext& ctx) override {
    started.push_back(gathers());
    s.set("hidden", linears_[static_cast<size_t>(unit)](s["hidden"], ctx));
  }
  int64_t gathers() const {
    const auto found = comm_.counts().find(CommKind::all_gather);
    return found == comm_.counts().end() ? 0 : found->second.calls;
  }
  std::vector<int64_t> started;

 private:
  const Communicator& comm_;
  std::vector<Linear> linears_;
};

struct Bound {
  std::shared_ptr<Chain> chain;
  std::unique_ptr<BoundComponent> component;
  std::unique_ptr<SlabPool> pool;
};

// `first_reads`: does the first unit's backward, which needs no gradient of its input, ask for its weights?
Bound bind(Communicator& comm, bool recompute = true, bool first_reads = true) {
  Declarations declarations;
  declarations.component = "backbone";
  Bound out;
  out.chain = std::make_shared<Chain>(Declarer(declarations), comm, first_reads);
  BindOptions options;
  options.comm = &comm;
  options.recompute = recompute;
  out.component = std::make_unique<BoundComponent>(out.chain, std::move(declarations), options);
  out.component->init_weights(1);
  out.pool = std::make_unique<SlabPool>(out.component->largest_buffer_bytes());
  return out;
}

TEST(Ranks, TheNextUnitIsUnderWayAndEmptyRanksTakePart) {
  run_loopback(2, [](Communicator& comm) {
    Bound bound = bind(comm);
    Partitions partitions;
    const int64_t rows = comm.rank() == 0 ? 5 : 0;
    partitions[""].append(rows, {1, 0, 0});
    TapeContext context;
    context.partitions = &partitions;
    Tape tape(*bound.component, *bound.pool, context);
    StreamMap streams{{"hidden", at::ones({rows, kColumns})}};
    for (int unit = 0; unit < kUnits; ++unit) tape.forward(unit, streams);
    EXPECT_EQ(bound.chain->gathers(), kUnits);
    StreamMap gradients{{"hidden", at::ones({rows, kColumns})}};
    for (int unit = kUnits - 1; unit >= 0; --unit) tape.backward(unit, gradients);
    EXPECT_EQ(bound.chain->gathers(), 2 * kUnits);
    EXPECT_EQ(comm.counts().at(CommKind::reduce_scatter).calls, kUnits);
    EXPECT_EQ(bound.pool->in_use(), 1);  // the last sum is on its way
    bound.component->finish_gradients();
    EXPECT_EQ(bound.pool->in_use(), 0);
    if (comm.rank() == 0) {
      // Forward 0, 1, 2, then the recomputations of 2, 1, 0: always one gather ahead, until there is nothing ahead.
      EXPECT_EQ(bound.chain->started, (std::vector<int64_t>{2, 3, 3, 5, 6, 6}));
      EXPECT_EQ(tape.counters().units_recomputed, kUnits);
    } else {
      EXPECT_TRUE(bound.chain->started.empty());
      EXPECT_EQ(tape.counters().units_skipped_empty, kUnits);
    }
  });
}

// Of three units two stay gathered between the passes, within the memory of two slabs; of the first one the backward
// needs the weights only when it runs it again.
TEST(Ranks, WhatBackwardNeedNotGather) {
  const auto gathers = [](bool recompute, bool first_reads) {
    int64_t count = 0;
    run_loopback(2, [&](Communicator& comm) {
      Bound bound = bind(comm, recompute, first_reads);
      Partitions partitions;
      partitions[""].append(3, {1, 0, 0});
      TapeContext context;
      context.partitions = &partitions;
      context.backward_follows = true;
      Tape tape(*bound.component, *bound.pool, context);
      StreamMap streams{{"hidden", at::ones({3, kColumns})}};
      for (int unit = 0; unit < kUnits; ++unit) tape.forward(unit, streams);
      EXPECT_EQ(bound.pool->in_use(), 2);
      StreamMap gradients{{"hidden", at::ones({3, kColumns})}};
      for (int unit = kUnits - 1; unit >= 0; --unit) tape.backward(unit, gradients);
      bound.component->finish_gradients();
      EXPECT_EQ(bound.pool->in_use(), 0);
      if (comm.rank() == 0) count = bound.chain->gathers();
    });
    return count;
  };
  EXPECT_EQ(gathers(false, true), kUnits + 1);
  EXPECT_EQ(gathers(true, true), kUnits + 1);
  EXPECT_EQ(gathers(false, false), kUnits);
  EXPECT_EQ(gathers(true, false), kUnits + 1);
}

TEST(Ranks, HeldWeightsNeedNoCommunication) {
  run_loopback(2, [](Communicator& comm) {
    Bound bound = bind(comm);
    for (int unit = 0; unit < kUnits; ++unit) bound.component->gather(unit, *bound.pool);
    if (comm.rank() == 0) {
      Partitions partitions;
      partitions[""].append(3, {1, 0, 0});
      TapeContext context;
      context.partitions = &partitions;
      context.phase = Phase::evaluate;
      Tape tape(*bound.component, *bound.pool, context);
      const int64_t before = comm.bytes_sent();
      StreamMap streams{{"hidden", at::ones({3, kColumns})}};
      for (int unit = 0; unit < kUnits; ++unit) tape.forward(unit, streams);
      EXPECT_EQ(comm.bytes_sent(), before);
    }
    for (int unit = 0; unit < kUnits; ++unit) bound.component->release(unit, *bound.pool);
    EXPECT_EQ(bound.pool->in_use(), 0);
  });
}

}  // namespace
}  // namespace loom::test
