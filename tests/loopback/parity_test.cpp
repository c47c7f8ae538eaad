// Invariants 1 to 3 and 5 to 7 of the design over the zoo: loss, interior losses, every gradient, states and weights
// after two steps are those of one rank, whatever the layout. Combinations come from a pairwise generator;
// OMNILOOM_TEST_FULL=1 crosses the factors that meet in the services.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/loopback/parity_case.h"

namespace loom::test {
namespace {

bool full() {
  const char* value = std::getenv("OMNILOOM_TEST_FULL");
  return value != nullptr && std::string(value) == "1";
}

// All of model x world x encoder_sp x backbone_sp x placing, the others drawn.
std::vector<Combination> crossed(const std::vector<Factor>& factors) {
  const std::vector<size_t> across{0, 1, 5, 6, 7};
  const Philox random({5, Purpose::sample});
  std::vector<Combination> out;
  uint64_t next = 0;
  std::function<void(Combination, size_t)> extend = [&](Combination c, size_t depth) {
    if (depth == across.size()) {
      Combination drawn;
      do {
        drawn = c;
        for (size_t f = 0; f < factors.size(); ++f) {
          if (drawn[f] < 0) drawn[f] = static_cast<int>(random.below(factors[f].levels.size(), next++));
        }
      } while (!parity_allowed(drawn));
      out.push_back(std::move(drawn));
      return;
    }
    for (int level = 0; level < static_cast<int>(factors[across[depth]].levels.size()); ++level) {
      c[across[depth]] = level;
      if (parity_allowed(c)) extend(c, depth + 1);
    }
  };
  extend(Combination(factors.size(), -1), 0);
  return out;
}

TEST(LoopbackParity, OneRankRepeatsItself) {
  for (const ModelSpec& spec : zoo_models()) {
    BindChoice bind;
    bind.dropout = 0.2;
    const RunData data = random_data(spec, bind, {});
    const RunRecord reference = run_reference(spec, bind, data);
    EXPECT_EQ(compare(reference, run_reference(spec, bind, data)).worst, 0) << spec.name;
    EXPECT_EQ(reference.counters.bytes_sent, 0) << spec.name;
    // Accumulation, recompute and slabs on one rank.
    bind.recompute = bind.always_slab = true;
    LayoutChoice layout;
    layout.microbatches = 3;
    const std::vector<StepPlan> plans = random_plans(spec, bind, layout, data);
    ASSERT_GT(plans[0].microbatches.size(), 1u) << spec.name;
    const RunRecord run = run_plans(spec, bind, layout, data, plans);
    EXPECT_GT(run.counters.tape.units_recomputed, 0);
    const Difference difference = compare(reference, run);
    EXPECT_LE(difference.worst, 1e-10) << spec.name << ": " << difference.where;
  }
}

TEST(LoopbackParity, EveryPairOfFactors) {
  const std::vector<Factor>& factors = parity_factors();
  std::vector<Combination> cases = pairwise(factors, parity_allowed, 150, 1);
  if (full()) {
    const std::vector<Combination> more = crossed(factors);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  Exercised sum;
  for (size_t i = 0; i < cases.size(); ++i) {
    check_parity(parity_case(cases[i], i + 1), concat("case ", i, ": ", describe(cases[i], factors)), sum);
  }
  const Coverage coverage = coverage_of(cases, factors, parity_allowed);
  std::cout << "  " << coverage.covered << " of " << coverage.possible << " pairs covered\n";
  print(sum);
  EXPECT_EQ(coverage.covered, coverage.possible);
  EXPECT_GE(cases.size(), 60u);
  EXPECT_LE(sum.by_noise * 1000, sum.float_tensors);
  for (const int64_t count : {sum.split_items, sum.split_samples, sum.idle_ranks, sum.halos, sum.split_sums,
                              sum.recomputed, sum.without_items, sum.without_rows}) {
    EXPECT_GT(count, 0);
  }
}

// Whoever encodes an item: anybody (in the cases above), a rank of its group, or, unless it is long, the one that wants
// its embeddings.
TEST(LoopbackParity, BalanceChangesNothing) {
  Exercised sum;
  for (const ModelSpec& spec : zoo_models()) {
    for (const Balance& balance : {Balance{1, true, true}, {2, true, true}, {2, true, false}, {0, false, true}}) {
      for (const int world : {4, 8}) {
        ParityCase parity;
        parity.spec = &spec;
        parity.bind.dropout = 0.1;
        parity.layout = {.world = world, .encoder_sp = 2, .backbone_sp = 2, .balance = balance, .microbatches = 2};
        check_parity(parity, concat(spec.name, ", groups of ", balance.group, balance.move ? "" : ", at home"), sum);
      }
    }
  }
  print(sum);
  EXPECT_GT(sum.split_items, 0);
}

// A step in which no token is supervised, with ranks, microbatches and modalities missing: gradients are zero, not NaN.
TEST(LoopbackParity, NothingSupervised) {
  for (const char* name : {"captioner", "context_and_text", "conv"}) {
    ParityCase parity;
    parity.spec = &zoo_model(name);
    parity.data.supervised = false;
    parity.layout = {.world = 4, .encoder_sp = 2, .backbone_sp = 2, .placing = Placing::random, .microbatches = 3};
    Exercised sum;
    check_parity(parity, name, sum);
  }
}

// Late and early messages in another order change nothing.
TEST(LoopbackParity, DelaysChangeNothing) {
  for (const char* name : {"two_encoders", "deepstack", "mean"}) {
    ParityCase parity;
    parity.spec = &zoo_model(name);
    parity.layout = {.world = 4, .backbone_shard = 2, .encoder_sp = 4, .backbone_sp = 2, .placing = Placing::random};
    parity.layout.delays = 3;
    Exercised sum;
    check_parity(parity, name, sum);
  }
}

}  // namespace
}  // namespace loom::test
