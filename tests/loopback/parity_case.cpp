#include "tests/loopback/parity_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "core/base/error.h"

namespace loom::test {
namespace {

enum Place : size_t {
  kModel,
  kWorld,
  kEncoderShard,
  kConnectorShard,
  kBackboneShard,
  kEncoderSp,
  kBackboneSp,
  kPlacing,
  kRecompute,
  kDtype,
  kTied,
  kDropout,
  kAccumulation,
  kSlab,
  kMix,
  kKept,
  kEncoderAttention,
  kBackboneAttention,
  kEncoderTp,
  kConnectorTp,
  kBackboneTp,
};

constexpr int kWorlds[] = {2, 4, 8}, kShards[] = {1, 2, 0}, kSps[] = {1, 2, 4};
constexpr int64_t kMicrobatches[] = {1, 2, 3};

std::vector<Factor> make_factors() {
  std::vector<std::string> models;
  for (const ModelSpec& spec : zoo_models()) models.push_back(spec.name);
  const std::vector<std::string> shards{"none", "2", "all"}, sps{"1", "2", "4"}, switches{"off", "on"};
  const std::vector<std::string> attention{"ulysses", "ring", "mesh"};
  return {{"model", models},
          {"world", {"2", "4", "8"}},
          {"encoder_shard", shards},
          {"connector_shard", shards},
          {"backbone_shard", shards},
          {"encoder_sp", sps},
          {"backbone_sp", sps},
          {"placing", {"planner", "random", "subsets", "one_rank"}},
          {"recompute", switches},
          {"dtype", {"float64", "float32"}},
          {"tied", switches},
          {"dropout", switches},
          {"accumulation", {"1", "2", "3"}},
          {"always_slab", switches},
          {"mix", {"mixed", "sparse", "lopsided", "absent"}},
          {"kept", {"nothing", "weights", "gradients", "both"}},
          {"encoder_attention", attention},
          {"backbone_attention", attention},
          {"encoder_tp", sps},
          {"connector_tp", {"1", "2"}},
          {"backbone_tp", sps}};
}

bool has_encoder(const ModelSpec& spec, const std::string& modality, EncoderKind kind) {
  return std::any_of(spec.encoders.begin(), spec.encoders.end(),
                     [&](const EncoderChoice& c) { return c.modality == modality && c.kind == kind; });
}

// What all plans of a run exercise.
PlanFacts facts_of_all(const std::vector<StepPlan>& plans) {
  PlanFacts all;
  for (const StepPlan& plan : plans) {
    const PlanFacts facts = facts_of(plan);
    all.splits_samples = all.splits_samples || facts.splits_samples;
    all.splits_over_groups = all.splits_over_groups || facts.splits_over_groups;
    all.idle_groups = all.idle_groups || facts.idle_groups;
    all.idle_ranks = all.idle_ranks || facts.idle_ranks;
    all.moves_embeddings = all.moves_embeddings || facts.moves_embeddings;
    all.microbatch_without_items = all.microbatch_without_items || facts.microbatch_without_items;
    all.microbatch_without_rows = all.microbatch_without_rows || facts.microbatch_without_rows;
    all.splits_items.insert(all.splits_items.end(), facts.splits_items.begin(), facts.splits_items.end());
  }
  return all;
}

// A layout that claims to split or to leave ranks empty must do so.
void check_claims(const ParityCase& parity, const PlanFacts& facts) {
  const LayoutChoice& layout = parity.layout;
  const bool divisible = !has_encoder(*parity.spec, "image", EncoderKind::module);
  if (layout.placing == Placing::random) {
    if (layout.encoder_sp > 1 && divisible) {
      EXPECT_FALSE(facts.splits_items.empty());
    }
    if (layout.backbone_sp > 1) {
      EXPECT_TRUE(facts.splits_samples);
    }
  }
  if (layout.placing == Placing::planner && layout.backbone_sp > 1) {
    EXPECT_TRUE(facts.splits_samples);
  }
  if (layout.placing == Placing::subsets || layout.placing == Placing::one_rank) {
    EXPECT_TRUE(facts.idle_ranks);
  }
  if (layout.placing != Placing::planner && layout.microbatches > 2) {
    EXPECT_TRUE(facts.microbatch_without_rows);
  }
  if (parity.data.mix == Mix::absent) {
    EXPECT_TRUE(facts.microbatch_without_items);
  }
}

// What the plans exercise must have been done: by the counters.
void check_counters(const ParityCase& parity, const PlanFacts& facts, const RunCounters& counters, Exercised& sum) {
  EXPECT_GT(counters.bytes_sent, 0);
  EXPECT_GT(counters.tape.units_run, 0);
  const ServiceCounters& services = counters.tape.services;
  if (facts.splits_over_groups) {
    EXPECT_GT(services.split_segments, 0);
    EXPECT_GT(counters.exchanged, 0);
  }
  if (facts.moves_embeddings) {
    EXPECT_GT(counters.exchanged, 0);
  }
  if (facts.idle_groups) {
    EXPECT_GT(counters.tape.units_skipped_empty, 0);
  }
  bool halos = false, sums = false;
  for (const std::string& modality : facts.splits_items) {
    halos = halos || has_encoder(*parity.spec, modality, EncoderKind::conv);
    sums = sums || has_encoder(*parity.spec, modality, EncoderKind::mean);
  }
  EXPECT_EQ(services.halo_rows > 0, halos);
  EXPECT_EQ(services.split_sums > 0, sums);
  EXPECT_EQ(counters.tape.units_recomputed > 0, parity.bind.recompute);
  sum.halos += halos ? 1 : 0;
  sum.split_sums += sums ? 1 : 0;
  sum.recomputed += parity.bind.recompute ? 1 : 0;
  sum.split_items += facts.splits_items.empty() ? 0 : 1;
  sum.split_samples += facts.splits_samples ? 1 : 0;
  sum.idle_ranks += facts.idle_ranks ? 1 : 0;
  sum.without_items += facts.microbatch_without_items ? 1 : 0;
  sum.without_rows += facts.microbatch_without_rows ? 1 : 0;
}

}  // namespace

const std::vector<Factor>& parity_factors() {
  static const std::vector<Factor> factors = make_factors();
  return factors;
}

bool parity_allowed(const Combination& c) {
  const auto fits = [&](size_t factor) {
    return c[kWorld] < 0 || c[factor] < 0 || kSps[c[factor]] <= kWorlds[c[kWorld]];
  };
  const auto lane_fits = [&] {
    return c[kBackboneSp] < 0 || c[kBackboneTp] < 0 ||
           kSps[c[kBackboneSp]] * kSps[c[kBackboneTp]] <= (c[kWorld] < 0 ? 8 : kWorlds[c[kWorld]]);
  };
  return fits(kEncoderSp) && fits(kBackboneSp) && fits(kEncoderTp) && fits(kBackboneTp) && lane_fits();
}

ParityCase parity_case(const Combination& c, uint64_t seed) {
  ParityCase out;
  out.spec = &zoo_models()[static_cast<size_t>(c[kModel])];
  out.bind.recompute = c[kRecompute] == 1;
  out.bind.dtype = c[kDtype] == 0 ? at::kDouble : at::kFloat;
  out.bind.tied = c[kTied] == 1;
  out.bind.dropout = c[kDropout] == 1 ? 0.25 : 0;
  out.bind.always_slab = c[kSlab] == 1;
  out.bind.keep_weights = c[kKept] % 2 == 1;
  out.bind.keep_gradients = c[kKept] >= 2;
  out.data.seed = seed;
  out.data.mix = static_cast<Mix>(c[kMix] + 1);
  out.layout.world = kWorlds[c[kWorld]];
  out.layout.encoder_shard = kShards[c[kEncoderShard]];
  out.layout.connector_shard = kShards[c[kConnectorShard]];
  out.layout.backbone_shard = kShards[c[kBackboneShard]];
  out.layout.encoder_sp = kSps[c[kEncoderSp]];
  out.layout.backbone_sp = kSps[c[kBackboneSp]];
  out.layout.encoder_tile = c[kEncoderAttention];
  out.layout.backbone_tile = c[kBackboneAttention];
  out.layout.encoder_tp = kSps[c[kEncoderTp]];
  out.layout.connector_tp = kSps[c[kConnectorTp]];
  out.layout.backbone_tp = kSps[c[kBackboneTp]];
  out.layout.placing = static_cast<Placing>(c[kPlacing] + 1);
  out.layout.microbatches = kMicrobatches[c[kAccumulation]];
  out.layout.seed = seed;
  return out;
}

void check_parity(const ParityCase& parity, const std::string& name, Exercised& sum) {
  SCOPED_TRACE(name);
  ++sum.cases;
  try {
    const RunData data = random_data(*parity.spec, parity.bind, parity.data);
    const std::vector<StepPlan> plans = random_plans(*parity.spec, parity.bind, parity.layout, data);
    const RunRecord reference = run_reference(*parity.spec, parity.bind, data);
    const RunRecord run = run_plans(*parity.spec, parity.bind, parity.layout, data, plans);
    EXPECT_EQ(run.disagreement, "");
    const bool single = parity.bind.dtype == at::kFloat;
    Difference difference = compare(reference, run);
    if (single && difference.worst > tolerance(at::kFloat)) {
      BindChoice exact = parity.bind;
      exact.dtype = at::kDouble;
      const RunRecord doubles = run_reference(*parity.spec, exact, data);
      std::vector<RunRecord> others{run_in_two(*parity.spec, parity.bind, data, parity.data.seed)};
      BindChoice nudged = parity.bind;
      for (nudged.nudge = 1; nudged.nudge <= 3; ++nudged.nudge)
        others.push_back(run_reference(*parity.spec, nudged, data));
      difference = compare(reference, run, &doubles, others);
    }
    EXPECT_LE(difference.worst, tolerance(parity.bind.dtype)) << difference.where;
    double& worst = single ? sum.worst_float : sum.worst_double;
    worst = std::max(worst, difference.worst);
    sum.float_tensors += single ? difference.tensors : 0;
    sum.by_noise += difference.by_noise;
    if (difference.by_noise > 0)
      std::cout << "  " << name << ": " << difference.by_noise << " of " << difference.tensors
                << " tensors judged by their own rounding\n";
    const PlanFacts facts = facts_of_all(plans);
    check_claims(parity, facts);
    check_counters(parity, facts, run.counters, sum);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void print(const Exercised& sum) {
  std::cout << "  " << sum.cases << " cases: items split in " << sum.split_items << ", samples split in "
            << sum.split_samples << ", ranks without rows in " << sum.idle_ranks << ", halos in " << sum.halos
            << ", segment sums over ranks in " << sum.split_sums << ", recompute in " << sum.recomputed
            << ", microbatches without items in " << sum.without_items << ", without any rows in " << sum.without_rows
            << "\n  worst difference " << sum.worst_double << " (float64), " << sum.worst_float << " (float32); "
            << sum.by_noise << " of " << sum.float_tensors << " float32 tensors judged by their own rounding\n";
}

}  // namespace loom::test
