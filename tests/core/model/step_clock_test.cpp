// Kinds add up to the whole, belong to the right unit, are counted once, and only during a step.
#include "core/model/step_clock.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <chrono>
#include <thread>

#include "core/model/step_meter.h"
#include "core/parallel/memory_meter.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

const std::vector<TinySample> kSamples{{1, {3}, 5}, {2, {2, 4}, 3}, {3, {}, 7}};

std::unique_ptr<MultimodalModel> float_model() {
  TinyOptions options{at::kFloat, at::kFloat};
  return tiny_model(options);
}

void pass(MultimodalModel& model) {
  model.forward_backward(tiny_batch(kSamples, at::kFloat), 1, tiny_denominators(9, 30, 3));
}

double sum_of(const StepTime& time) { return time.passes.total() + time.optimizer + time.data + time.rest; }

const UnitTime* unit_of(const StepTime& time, const std::string& component, const std::string& unit) {
  for (const UnitTime& found : time.units) {
    if (found.component == component && found.unit == unit) return &found;
  }
  return nullptr;
}

TEST(StepClock, KindsOfOperationsByTheirNames) {
  for (const char* name : {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm_", "aten::convolution",
                           "aten::convolution_backward", "aten::mkldnn_linear", "aten::cudnn_convolution",
                           "aten::_scaled_mm", "loom::matmul", "mkldnn::_linear_pointwise"})
    EXPECT_EQ(kind_of_operation(name), TimeKind::gemm) << name;
  for (const char* name : {"loom::attention", "loom::attention_backward", "aten::_flash_attention_forward",
                           "aten::_efficient_attention_backward", "aten::scaled_dot_product_attention",
                           "aten::_scaled_dot_product_flash_attention"})
    EXPECT_EQ(kind_of_operation(name), TimeKind::attention) << name;
  for (const char* name : {"loom::comm backbone.blocks.0: weights", "c10d::allgather_", "nccl:all_reduce"})
    EXPECT_EQ(kind_of_operation(name), TimeKind::communication) << name;
  for (const char* name : {"", "aten::", "aten::add", "aten::mul", "aten::copy_", "aten::matrix_exp", "aten::bmm_x",
                           "loom::norm", "loom::log_probs", "mm", "other::mm"})
    EXPECT_EQ(kind_of_operation(name), std::nullopt) << name;
}

TEST(StepClock, TimesOfUnitsAndKindsAddUp) {
  const auto model = float_model();
  StepClock clock(*model);
  for (int step = 0; step < 3; ++step) {
    clock.begin_step(0.25);
    pass(*model);
    pass(*model);
    const StepTime time = clock.end_step();
    EXPECT_NEAR(sum_of(time), time.seconds, 1e-9);
    EXPECT_GE(time.seconds, 0.25);
    EXPECT_DOUBLE_EQ(time.data, 0.25) << "what was waited before";
    EXPECT_EQ(time.optimizer, 0);
    EXPECT_EQ(time.passes.communication, 0);
    EXPECT_GT(time.passes.gemm, 0);
    EXPECT_GT(time.passes.other, 0);
    ASSERT_EQ(time.units.size(), 2u + 1 + 4);
    KindSeconds units;
    for (const UnitTime& unit : time.units) {
      EXPECT_GT(unit.forward.total(), 0) << unit.component << "." << unit.unit;
      units += unit.forward;
      units += unit.backward;
    }
    EXPECT_LE(units.gemm, time.passes.gemm + 1e-12);
    EXPECT_NEAR(units.other, time.passes.other, 1e-9);
    const UnitTime* block = unit_of(time, "backbone", "blocks.1");
    ASSERT_NE(block, nullptr);
    EXPECT_GT(block->forward.gemm, 0);
    EXPECT_GT(block->backward.gemm, 0);
    const UnitTime* embed = unit_of(time, "backbone", "embed");
    ASSERT_NE(embed, nullptr);
    EXPECT_EQ(embed->forward.gemm, 0) << "a table is no product";
    EXPECT_GT(embed->forward.other, 0);
  }
}

void rest(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST(StepClock, ActionsOutsideOfPasses) {
  const auto model = float_model();
  StepClock clock(*model);
  clock.begin_step();
  {
    const ObservedAction action(model->observer(), StepAction::data);
    rest(20);
  }
  {
    const ObservedAction action(model->observer(), StepAction::batch);
    rest(10);
  }
  {
    const ObservedAction action(model->observer(), StepAction::update);
    rest(15);
  }
  rest(25);
  const StepTime time = clock.end_step();
  EXPECT_GE(time.data, 0.030);
  EXPECT_GE(time.optimizer, 0.015);
  EXPECT_GE(time.rest, 0.025);
  EXPECT_EQ(time.passes.total(), 0);
  EXPECT_TRUE(time.units.empty());
  EXPECT_NEAR(sum_of(time), time.seconds, 1e-9);
}

// An operation within another, as the program's own pieces have them.
struct Record {
  explicit Record(const char* name) : record(at::RecordScope::FUNCTION) {
    if (record.isActive()) record.before(name);
  }
  at::RecordFunction record;
};

TEST(StepClock, OfOperationsInEachOtherTheOutermostCountsOnce) {
  const auto model = float_model();
  StepClock clock(*model);
  clock.begin_step();
  {
    const ObservedAction action(model->observer(), StepAction::forward, "backbone", "block");
    const Record no_kind("loom::log_probs");
    {
      const Record outer("loom::attention");
      const Record inner("aten::mm");
      rest(20);
    }
    {
      const Record gemm("loom::matmul");
      rest(10);
    }
    {
      const Record comm("loom::comm weights");
      rest(5);
    }
  }
  {
    const ObservedAction action(model->observer(), StepAction::norm);
    const Record comm("loom::comm norm");
    rest(5);
  }
  {
    const Record gemm("aten::mm");  // between actions
    rest(5);
  }
  const StepTime time = clock.end_step();
  ASSERT_EQ(time.units.size(), 1u);
  const KindSeconds& forward = time.units[0].forward;
  EXPECT_GE(forward.attention, 0.020);
  EXPECT_GE(forward.gemm, 0.010);
  EXPECT_LT(forward.gemm, forward.attention) << "the product inside attention is attention";
  EXPECT_GE(forward.communication, 0.005);
  EXPECT_EQ(time.units[0].backward.total(), 0);
  EXPECT_GE(time.passes.communication, forward.communication + 0.005) << "the norm's is communication, too";
  EXPECT_GE(time.passes.gemm, forward.gemm + 0.005);
  EXPECT_LT(time.optimizer, 0.005);
  EXPECT_NEAR(sum_of(time), time.seconds, 1e-9);
}

TEST(StepClock, SeveralListenAtOnce) {
  install_memory_meter();
  const auto model = float_model();
  double alone = 0;
  {
    StepMeter meter(*model);
    pass(*model);
    alone = meter.total().model();
  }
  StepClock clock(*model);
  {
    StepMeter meter(*model);
    clock.begin_step();
    pass(*model);
    EXPECT_EQ(meter.total().model(), alone);
    EXPECT_EQ(clock.end_step().units.size(), meter.units().size());
  }
  EXPECT_EQ(model->observer(), &model->observers());
  clock.begin_step();
  pass(*model);
  EXPECT_EQ(clock.end_step().units.size(), 7u);
}

TEST(StepClock, NothingIsClockedOutsideOfAStep) {
  const auto model = float_model();
  {
    StepClock clock(*model);
    pass(*model);
    clock.begin_step();
    const StepTime nothing = clock.end_step();
    EXPECT_TRUE(nothing.units.empty());
    EXPECT_EQ(nothing.passes.total(), 0);
    pass(*model);
    clock.begin_step();
    EXPECT_TRUE(clock.end_step().units.empty());
    clock.begin_step();
    EXPECT_THROW(clock.begin_step(), InternalError);
  }
  EXPECT_EQ(model->observer(), nullptr);
  EXPECT_FALSE(at::hasThreadLocalCallbacks()) << "a step that was never ended leaves nothing behind";
}

TEST(StepClock, AStepThatFailsDoesNotSpoilTheNext) {
  const auto model = float_model();
  {
    StepClock clock(*model);
    clock.begin_step();
    try {
      const ObservedAction action(model->observer(), StepAction::forward, "backbone", "block");
      const Record gemm("aten::mm");
      throw UserError("stop");
    } catch (const UserError&) {
    }
  }
  StepClock clock(*model);
  clock.begin_step();
  pass(*model);
  const StepTime time = clock.end_step();
  EXPECT_EQ(time.units.size(), 7u);
  EXPECT_NEAR(sum_of(time), time.seconds, 1e-9);
}

TEST(StepClock, WhatIsComputedDoesNotChange) {
  const auto plain = float_model(), clocked = float_model();
  const TinyStep a = tiny_step(*plain, {tiny_batch(kSamples, at::kFloat)});
  StepClock clock(*clocked);
  clock.begin_step();
  const TinyStep b = tiny_step(*clocked, {tiny_batch(kSamples, at::kFloat)});
  clock.end_step();
  expect_bitwise(a, b);
}

}  // namespace
}  // namespace loom::test
