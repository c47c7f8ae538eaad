// The fused way of SelfAttention (q and k turned where the projection put them, one gradient for all three) against the
// general one and the composition, also when a unit is computed again.
#include "core/nn/self_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>

#include "core/nn/ops/pieces.h"
#include "core/nn/varlen_attention.h"
#include "tests/core/nn/levels.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

Segments shifted_segments() {
  Segments out;
  out.append(7, {1, 0, 0}, {9, 1, 2, 3, 700, 5, 6});
  out.append(0, {2, 0, 0});
  out.append(70, {3, 0, 0});
  return out;
}

struct Outcome {
  Tensor out, gradient;
};

void expect_same(const Outcome& a, const Outcome& b, double tolerance) {
  EXPECT_LE(relative_difference(a.out, b.out), tolerance) << "output";
  EXPECT_LE(relative_difference(a.gradient, b.gradient), tolerance) << "gradient";
}

TEST(FusedAttention, IsRotaryThenAttention) {
  const ScopedPieces fused(Pieces::fused);
  at_every_level([] {
    at::manual_seed(1);
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      for (const bool turns : {false, true}) {
        BoundLayer layer;
        layer.partitions()[""] = shifted_segments();
        VarlenShape shape;
        shape.heads = 6;
        shape.kv_heads = 2;
        shape.head_dim = 10;
        shape.causal = true;
        shape.scale = 0.3;
        const std::vector<AttentionRange> ranges{{0, 7, 0, 7}, {7, 70, 7, 70}};
        const Rotary rotary(10, 100.0);
        const Tensor x = at::randn({77, 100}, dtype), grad = at::randn({77, 60}, dtype);
        const auto run = [&](const std::function<Tensor(const Tensor& qkv, UnitContext& ctx)>& call) {
          const Tensor leaf = x.clone().requires_grad_();
          UnitContext ctx = layer.context();
          const Tensor out = call(leaf * 1.0, ctx);
          return Outcome{out.detach(), torch::autograd::grad({out}, {leaf}, {grad})[0]};
        };
        const Outcome together = run([&](const Tensor& qkv, UnitContext& ctx) {
          return fused_attention(qkv, turns ? rotary.turner(qkv, ctx) : nullptr, ranges, shape, nullptr, nullptr);
        });
        const Outcome apart = run([&](const Tensor& qkv, UnitContext& ctx) {
          std::vector<Tensor> parts = qkv.split_with_sizes({60, 20, 20}, 1);
          if (turns) {
            for (int i : {0, 1}) parts[i] = rotary(parts[i], ctx);
          }
          return varlen_attention(parts[0], parts[1], parts[2], ranges, shape, nullptr, nullptr);
        });
        EXPECT_TRUE(same_bits(together.out, apart.out));
        EXPECT_TRUE(same_bits(together.gradient, apart.gradient));
      }
    }
  });
}

SelfAttentionOptions decoder() {
  SelfAttentionOptions options;
  options.width = 24;
  options.heads = 6;
  options.kv_heads = 2;
  options.head_dim = 8;
  options.causal = true;
  options.rotary_theta = 50;
  return options;
}

// A unit's context, which may keep values for a second run.
UnitContext context_of(BoundLayer& layer, KeptValues* kept, bool again) {
  ContextState state;
  state.declarations = &layer.declarations();
  state.bound = &layer.params();
  state.partitions = &layer.partitions();
  state.unit = 0;
  state.kept = kept;
  state.recomputing = again;
  return UnitContext(state);
}

TEST(SelfAttention, FusedComposedAndRecomputedAgree) {
  at::manual_seed(2);
  BoundLayer layer;
  const SelfAttention attention(layer.declarer().child("attention"), decoder());
  layer.bind(at::kDouble);
  layer.partitions()[""] = shifted_segments();
  const Tensor x = at::randn({77, 24}, at::kDouble).requires_grad_(), grad = at::randn({77, 24}, at::kDouble);
  const auto run = [&](KeptValues* kept, bool again) {
    UnitContext ctx = context_of(layer, kept, again);
    const Tensor out = attention(x, ctx);
    std::vector<Tensor> leaves{x};
    leaves.insert(leaves.end(), layer.params().begin(), layer.params().end());
    std::vector<Tensor> gradients = torch::autograd::grad({out}, leaves, {grad});
    for (Tensor& g : gradients) g = g.reshape({-1});
    return Outcome{out.detach(), at::cat(gradients)};
  };
  const Outcome composed = [&] {
    const ScopedPieces pieces(Pieces::composed);
    return run(nullptr, false);
  }();
  const ScopedPieces pieces(Pieces::fused);
  const Outcome fused = run(nullptr, false);
  expect_same(fused, composed, 1e-13);
  KeptValues kept;
  const Outcome first = run(&kept, false), second = run(&kept, true);
  ASSERT_EQ(kept.attention.size(), 1U);
  for (const Outcome* o : {&first, &second}) {
    EXPECT_TRUE(same_bits(o->out, fused.out));
    EXPECT_TRUE(same_bits(o->gradient, fused.gradient));
  }
  // What the first run kept is what the second one takes.
  kept.attention[0].output.zero_();
  EXPECT_FALSE(same_bits(run(&kept, true).out, fused.out));
}

TEST(FusedAttention, TensorsWithoutMemoryHaveTheSameShapes) {
  VarlenShape shape;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 8;
  shape.causal = true;
  const std::vector<AttentionRange> ranges{{0, 5, 0, 5}, {6, 3, 6, 3}};  // row 5 is a gap
  const auto options = at::TensorOptions(at::kFloat).device(at::kMeta);
  for (const Pieces pieces : {Pieces::fused, Pieces::composed}) {
    const ScopedPieces scope(pieces);
    const Tensor leaf = at::empty({9, 64}, options).requires_grad_();
    const Tensor qkv = leaf * 1.0;
    const std::vector<Tensor> parts = qkv.split_with_sizes({32, 16, 16}, 1);
    const Tensor out = pieces == Pieces::fused
                           ? fused_attention(qkv, nullptr, ranges, shape, nullptr, nullptr)
                           : varlen_attention(parts[0], parts[1], parts[2], ranges, shape, nullptr, nullptr);
    EXPECT_TRUE(out.is_meta());
    EXPECT_EQ(out.sizes(), at::IntArrayRef({9, 32}));
    const Tensor gradient = torch::autograd::grad({out}, {leaf}, {at::empty({9, 32}, options)})[0];
    EXPECT_TRUE(gradient.is_meta());
    EXPECT_EQ(gradient.sizes(), leaf.sizes());
  }
}

TEST(SelfAttention, RotaryByComposition) {
  at::manual_seed(3);
  BoundLayer layer;
  layer.partitions()[""] = shifted_segments();
  const Rotary rotary(6, 100.0);
  const Tensor x = at::randn({77, 18}, at::kDouble).requires_grad_(), grad = at::randn({77, 18}, at::kDouble);
  const auto run = [&](Pieces pieces) {
    const ScopedPieces scope(pieces);
    UnitContext ctx = layer.context();
    const Tensor out = rotary(x, ctx);
    return Outcome{out.detach(), torch::autograd::grad({out}, {x}, {grad})[0]};
  };
  expect_same(run(Pieces::fused), run(Pieces::composed), 1e-15);
}

}  // namespace
}  // namespace loom::test
