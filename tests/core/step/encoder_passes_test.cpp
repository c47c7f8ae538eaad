// Which microbatches an encoder's pass serves, when it runs, and that its items are balanced together.
#include <gtest/gtest.h>

#include "core/step/imbalance.h"
#include "core/step/step_plan.h"

namespace loom {
namespace {

// Microbatches of one sample each; `items` by microbatch: does it have one?
StepPlan plan_of(const std::vector<bool>& items, int macro, bool ahead) {
  StepPlan plan;
  plan.layout.encoders["image"].macro = macro;
  plan.layout.encoders["image"].ahead = ahead;
  plan.microbatches.resize(items.size());
  for (size_t m = 0; m < items.size(); ++m) {
    Verdict& sample = plan.samples.emplace_back();
    sample.tokens = 4;
    plan.microbatches[m].samples = {{static_cast<int64_t>(m), {{0, 0, 4}}}};
    if (!items[m]) continue;
    sample.items.emplace_back().modality = "image";
    sample.items[0].meta = {8, 8, 10, {}};
    plan.microbatches[m].items["image"] = {{static_cast<int64_t>(m), 0, {{0, 0, 8}}}};
  }
  return plan;
}

std::string text_of(const std::vector<EncoderPass>& passes) {
  std::string out;
  for (const EncoderPass& pass : passes)
    out += std::to_string(pass.first) + "+" + std::to_string(pass.count) + " before " + std::to_string(pass.before) +
           ", until " + std::to_string(pass.last) + "; ";
  return out;
}

TEST(EncoderPasses, ServeOneOrSeveralMicrobatches) {
  const std::vector<bool> items{true, true, false, true, true};
  EXPECT_EQ(text_of(encoder_passes(plan_of(items, 1, false))),
            "0+1 before 0, until 0; 1+1 before 1, until 1; 3+1 before 3, until 3; 4+1 before 4, until 4; ");
  EXPECT_EQ(text_of(encoder_passes(plan_of(items, 2, false))),
            "0+2 before 0, until 1; 2+2 before 2, until 3; 4+1 before 4, until 4; ");
  EXPECT_EQ(text_of(encoder_passes(plan_of(items, 0, true))), "0+5 before 0, until 4; ");
  EXPECT_EQ(text_of(encoder_passes(plan_of(items, 2, true))),
            "0+2 before 0, until 1; 2+2 before 1, until 3; 4+1 before 3, until 4; ");
  EXPECT_EQ(text_of(encoder_passes(plan_of({false, false}, 2, true))), "");
}

// One item in each of four microbatches cannot be shared evenly by four ranks, one microbatch at a time.
TEST(EncoderPasses, ItemsOfAPassAreBalancedTogether) {
  std::vector<Verdict> samples;
  for (int i = 0; i < 4; ++i) {
    Verdict& sample = samples.emplace_back();
    sample.tokens = 10;
    sample.items.emplace_back().modality = "image";
    sample.items[0].meta = {8, 8, 100, {}};
    sample.items[0].slots = 8;
  }
  WorldLayout layout;
  layout.world = 4;
  layout.backbone.sp = 4;  // one lane
  EXPECT_DOUBLE_EQ(imbalance_of(make_step_plan(1, samples, 10, 0, layout)).at("encoders.image"), 4);
  layout.encoders["image"].macro = 2;
  EXPECT_DOUBLE_EQ(imbalance_of(make_step_plan(1, samples, 10, 0, layout)).at("encoders.image"), 2);
  layout.encoders["image"].macro = 0;
  const StepPlan plan = make_step_plan(1, samples, 10, 0, layout);
  ASSERT_EQ(plan.microbatches.size(), 4u);
  ASSERT_NO_THROW(check_plan(plan));
  EXPECT_DOUBLE_EQ(imbalance_of(plan).at("encoders.image"), 1);
}

}  // namespace
}  // namespace loom
