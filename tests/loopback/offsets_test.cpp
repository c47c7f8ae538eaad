// A sample cut at every one of its rows, through its pictures and between them, and an item cut at every legal row: no
// boundary is special.
#include <gtest/gtest.h>

#include "tests/loopback/harness.h"

namespace loom::test {
namespace {

struct Cuts {
  RunData data;
  std::vector<StepPlan> plans;
  LayoutChoice layout{.world = 2, .encoder_sp = 2, .backbone_sp = 2};
};

// One sample, one step per cut; each step cuts what `cut` says.
template <class Cut>
Cuts cuts_of(const ModelSpec& spec, const BindChoice& bind, int64_t count_of(const Verdict&), const Cut& cut) {
  Cuts out;
  const std::vector<PreparedSample> samples = random_data(spec, bind, {.seed = 5, .samples = 1}, 1).front();
  const auto model = make_model(spec, bind, {}, nullptr);
  const int64_t count = count_of(samples.front().verdict);
  for (int64_t i = 0; i < count; ++i) {
    StepPlan plan = single_plan(samples, i + 1);
    plan.layout = world_layout(*model, out.layout);
    cut(plan.microbatches.front(), plan.samples.front(), i);
    check_plan(plan);
    out.plans.push_back(std::move(plan));
    out.data.push_back(samples);
  }
  return out;
}

std::vector<Piece> in_two(int64_t rows, int64_t at) { return {{0, 0, at}, {1, at, rows - at}}; }

void expect_parity(const ModelSpec& spec, const BindChoice& bind, const Cuts& cuts) {
  ASSERT_GT(cuts.plans.size(), 10u) << spec.name;
  const RunRecord run = run_plans(spec, bind, cuts.layout, cuts.data, cuts.plans);
  EXPECT_GE(run.counters.tape.services.split_segments, static_cast<int64_t>(cuts.plans.size())) << spec.name;
  const Difference difference = compare(run_reference(spec, bind, cuts.data), run);
  EXPECT_LE(difference.worst, 1e-10) << spec.name << ": " << difference.where;
}

TEST(LoopbackOffsets, ASampleIsCutAtEveryRow) {
  for (const char* name : {"captioner", "deepstack", "merge"}) {
    const ModelSpec& spec = zoo_model(name);
    BindChoice bind;
    bind.dropout = 0.1;
    const Cuts cuts = cuts_of(
        spec, bind, [](const Verdict& v) { return v.tokens - 1; },
        [](MicrobatchPlan& plan, const Verdict& v, int64_t i) {
          plan.samples.front().pieces = in_two(v.tokens, i + 1);
        });
    int64_t inside = 0;  // cuts that go through a picture
    for (const ItemPlace& item : cuts.plans.front().samples.front().items) inside += item.slots - 1;
    EXPECT_GE(inside, 3) << name;
    expect_parity(spec, bind, cuts);
  }
}

TEST(LoopbackOffsets, AnItemIsCutAtEveryLegalRow) {
  for (const char* name : {"conv", "windows", "class_row"}) {
    const ModelSpec& spec = zoo_model(name);
    BindChoice bind;
    bind.recompute = true;
    const Cuts cuts = cuts_of(
        spec, bind, [](const Verdict& v) { return static_cast<int64_t>(v.items.front().cuts.size()); },
        [](MicrobatchPlan& plan, const Verdict& v, int64_t i) {
          const ItemPlace& item = v.items.front();
          plan.items.at(item.modality).front().pieces = in_two(item.meta.tokens, item.cuts[static_cast<size_t>(i)]);
        });
    expect_parity(spec, bind, cuts);
  }
}

}  // namespace
}  // namespace loom::test
