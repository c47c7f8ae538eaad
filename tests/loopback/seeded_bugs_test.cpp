// Invariant 14: every deliberate fault of core/base/faults.h is caught by a mismatch of numbers in a case that passes
// without it. One driver runs all and prints the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "tests/loopback/harness.h"
#include "tests/loopback/trainer_case.h"

namespace loom::test {
namespace {

// All faults off at the end of a scope.
class ScopedFault {
 public:
  explicit ScopedFault(Fault which) { set_fault(which); }
  ~ScopedFault() { set_fault(Fault::none); }
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;
};

// How far N ranks are from one, with the fault and without; one rank always runs without.
using Measure = std::function<Difference(Fault)>;

Measure parity(const std::string& model, LayoutChoice layout, BindChoice bind = {}) {
  return [=](Fault which) {
    const ModelSpec& spec = zoo_model(model);
    const RunData data = random_data(spec, bind, {.seed = 11});
    const std::vector<StepPlan> plans = random_plans(spec, bind, layout, data);
    const RunRecord reference = run_reference(spec, bind, data);
    const ScopedFault scope(which);
    return compare(reference, run_plans(spec, bind, layout, data, plans));
  };
}

Measure training(const std::string& model, LayoutChoice layout) {
  return [=](Fault which) {
    const ModelSpec& spec = zoo_model(model);
    const RunData data = random_data(spec, {}, {.seed = 12});
    const std::vector<StepPlan> plans = random_plans(spec, {}, layout, data);
    const std::vector<StepStats> reference = train_alone(spec, data);
    const ScopedFault scope(which);
    return compare(reference, train_plans(spec, data, plans).front());
  };
}

struct Row {
  Fault fault = Fault::none;
  Measure measure;
};

std::vector<Row> table() {
  const LayoutChoice sharded{.world = 2},
      copies{.world = 2, .encoder_shard = 1, .connector_shard = 1, .backbone_shard = 1};
  const LayoutChoice split{.world = 4, .encoder_sp = 2, .backbone_sp = 2, .placing = Placing::random};
  const LayoutChoice accumulated{.world = 2, .placing = Placing::random, .microbatches = 2};
  const LayoutChoice crowded{.world = 2, .placing = Placing::one_rank};
  LayoutChoice tensor{.world = 4, .encoder_tp = 2, .connector_tp = 2, .backbone_tp = 2, .placing = Placing::random};
  const LayoutChoice ring{.world = 4, .backbone_sp = 4, .backbone_tile = 1};
  BindChoice dropout;
  dropout.dropout = 0.25;
  return {{Fault::local_token_count, training("captioner", sharded)},
          {Fault::missing_replica_sum, parity("captioner", copies)},
          {Fault::averaged_gradients, parity("captioner", sharded)},
          {Fault::slice_before_shift, parity("captioner", split)},
          {Fault::local_positions, parity("deepstack", split)},
          {Fault::replicas_counted_twice, training("captioner", copies)},
          {Fault::wrong_kv_group, parity("merge", split)},
          {Fault::bridge_keeps_local, parity("captioner", split)},
          {Fault::halo_without_neighbour, parity("conv", split)},
          {Fault::mean_of_pieces, parity("mean", split)},
          {Fault::tied_overwrites, parity("captioner", sharded)},
          {Fault::stale_routes, parity("two_encoders", accumulated)},
          {Fault::permutation_twice, parity("windows", split)},
          {Fault::local_random_rows, parity("captioner", split, dropout)},
          {Fault::stale_weights, parity("context", sharded)},
          {Fault::state_per_microbatch, parity("statistics", accumulated)},
          {Fault::interior_by_local_rows, parity("balance", sharded)},
          {Fault::empty_rank_garbage, parity("conv", crowded)},
          {Fault::missing_tp_sum, parity("merge", tensor)},
          {Fault::bias_per_member, parity("captioner", tensor)},
          {Fault::part_of_vocabulary, parity("merge", tensor)},
          {Fault::gradient_of_own_rows, parity("deepstack", tensor)},
          {Fault::unweighted_merge, parity("merge", ring)},
          {Fault::tile_from_local_rows, parity("deepstack", ring)}};
}

TEST(LoopbackSeededBugs, EachIsCaughtByANumber) {
  const std::vector<Row> rows = table();
  for (int f = static_cast<int>(Fault::none) + 1; fault_name(static_cast<Fault>(f)) != "unknown"; ++f) {
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [&](const Row& row) { return static_cast<int>(row.fault) == f; }),
              1)
        << fault_name(static_cast<Fault>(f)) << " has no case";
  }
  int64_t caught = 0;
  std::printf("  %-24s %-12s %-12s %s\n", "fault", "without", "with", "worst at");
  for (const Row& row : rows) {
    const std::string name(fault_name(row.fault));
    try {
      const Difference without = row.measure(Fault::none);
      const Difference with = row.measure(row.fault);
      std::printf("  %-24s %-12.2g %-12.2g %s\n", name.c_str(), without.worst, with.worst, with.where.c_str());
      EXPECT_LE(without.worst, 1e-10) << name << ": " << without.where;
      EXPECT_GT(with.worst, 1e-5) << name << " goes unnoticed";
      caught += with.worst > 1e-5 ? 1 : 0;
    } catch (const Error& error) {
      ADD_FAILURE() << name << ": expected wrong numbers, found an error: " << error.what();
    }
  }
  std::printf("  %lld of %zu faults caught\n", static_cast<long long>(caught), rows.size());
  EXPECT_GE(caught, 12);
}

}  // namespace
}  // namespace loom::test
