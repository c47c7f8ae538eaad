// Services of the unit context: attention over partitions and across streams, segment sums, dropout as a function of
// the sample, kept values, and what it says when a layer asks for the wrong thing.
#include "core/nn/context.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/nn/linear.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

// softmax(q k^T / sqrt(d)) v over one range, heads with shared keys and values, in plain ATen.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads, int64_t kv_heads,
                       bool causal) {
  const int64_t d = q.size(1) / heads;
  const auto split = [&](const Tensor& x, int64_t n) { return x.view({x.size(0), n, d}).transpose(0, 1); };
  const Tensor Q = split(q, heads), K = split(k, kv_heads).repeat_interleave(heads / kv_heads, 0),
               V = split(v, kv_heads).repeat_interleave(heads / kv_heads, 0);
  Tensor scores = Q.matmul(K.transpose(1, 2)) / std::sqrt(static_cast<double>(d));
  if (causal) {
    const Tensor mask = at::ones({q.size(0), k.size(0)}, at::kBool).tril(k.size(0) - q.size(0)).logical_not();
    scores = scores.masked_fill(mask, -std::numeric_limits<double>::infinity());
  }
  return scores.softmax(-1).matmul(V).transpose(0, 1).reshape({q.size(0), heads * d});
}

TEST(Context, AttentionFollowsThePartitionItNames) {
  BoundLayer layer;
  layer.partitions()[""] = segments_of({9, 5});
  layer.partitions()["windows"] = segments_of({4, 5, 2, 3});
  UnitContext ctx = layer.context();
  const Tensor q = at::randn({14, 12}, at::kDouble), k = at::randn({14, 6}, at::kDouble),
               v = at::randn({14, 6}, at::kDouble);
  for (const char* partition : {"", "windows"}) {
    Attention a = ctx.attention({.heads = 4, .kv_heads = 2, .head_dim = 3, .causal = true, .partition = partition});
    a.query(q);
    a.key(k);
    a.value(v);
    const Tensor out = a.output();
    const Segments& s = layer.partitions().at(partition);
    for (int64_t i = 0; i < s.count(); ++i) {
      const auto part = [&](const Tensor& x) { return x.narrow(0, s.offsets[i], s.length(i)); };
      EXPECT_LE(relative_difference(part(out), plain_attention(part(q), part(k), part(v), 4, 2, true)), 1e-13);
    }
  }
}

TEST(Context, CrossAttentionPairsSegmentsOfTwoStreams) {
  BoundLayer layer;
  layer.partitions()[""] = segments_of({3, 0, 4});
  layer.partitions()["sound"] = segments_of({5, 2, 1});
  UnitContext ctx = layer.context();
  const Tensor q = at::randn({7, 8}, at::kDouble).requires_grad_(), k = at::randn({8, 8}, at::kDouble).requires_grad_(),
               v = at::randn({8, 8}, at::kDouble).requires_grad_();
  Attention a = ctx.attention({.heads = 2, .kv_heads = 2, .head_dim = 4, .kv_partition = "sound"});
  a.query(q);
  a.key(k);
  a.value(v);
  const Tensor out = a.output();
  const Tensor expected =
      at::cat({plain_attention(q.narrow(0, 0, 3), k.narrow(0, 0, 5), v.narrow(0, 0, 5), 2, 2, false),
               plain_attention(q.narrow(0, 3, 4), k.narrow(0, 7, 1), v.narrow(0, 7, 1), 2, 2, false)});
  EXPECT_LE(relative_difference(out, expected), 1e-13);
  const Tensor weights = at::randn_like(expected);
  (out * weights).sum().backward();
  const Tensor dk = k.grad().clone();
  EXPECT_EQ(dk.narrow(0, 5, 2).abs().sum().item<double>(), 0);  // the sound of the sample without queries
  k.mutable_grad() = Tensor();
  (expected * weights).sum().backward();
  EXPECT_LE(relative_difference(dk, k.grad()), 1e-12);
  layer.partitions()["sound"] = segments_of({5, 3});
  EXPECT_THROW(
      {
        Attention b = ctx.attention({.heads = 2, .kv_heads = 2, .head_dim = 4, .kv_partition = "sound"});
        b.query(q);
        b.key(k);
        b.value(v);
        b.output();
      },
      PluginError);
}

TEST(Context, SegmentSumAndMeanOfEmptySegments) {
  BoundLayer layer;
  layer.partitions()[""] = segments_of({2, 0, 3});
  UnitContext ctx = layer.context();
  const Tensor x = at::arange(10, at::kDouble).view({5, 2}).requires_grad_();
  const Tensor sum = ctx.segment_sum(x), mean = ctx.segment_mean(x);
  EXPECT_TRUE(at::equal(sum, at::tensor({2.0, 4.0, 0.0, 0.0, 18.0, 21.0}, at::kDouble).view({3, 2})));
  EXPECT_TRUE(at::equal(mean, at::tensor({1.0, 2.0, 0.0, 0.0, 6.0, 7.0}, at::kDouble).view({3, 2})));
  mean.sum().backward();
  EXPECT_DOUBLE_EQ(x.grad()[0][0].item<double>(), 0.5);
  EXPECT_DOUBLE_EQ(x.grad()[4][1].item<double>(), 1.0 / 3);
  EXPECT_THROW(ctx.segment_sum(at::zeros({4, 2})), PluginError);
}

// A row's mask depends on its sample, item and place, not on where it lies in the pack.
TEST(Context, DropoutIsAFunctionOfTheSample) {
  const Tensor ones = at::ones({12, 7});
  const auto masks = [&](const std::vector<std::pair<SegmentKey, int64_t>>& segments, int64_t step, uint64_t site) {
    Partitions partitions;
    for (const auto& [key, length] : segments) partitions[""].append(length, key);
    ContextState state;
    Declarations declarations;
    state.declarations = &declarations;
    state.partitions = &partitions;
    state.seed = 5;
    state.step = step;
    return UnitContext(state).dropout(ones.narrow(0, 0, partitions[""].rows()), 0.4, Site{site});
  };
  const SegmentKey a{11, 0, 0}, b{12, 1, 0};
  const Tensor together = masks({{a, 5}, {b, 6}}, 3, 9);
  EXPECT_TRUE(at::equal(together.narrow(0, 0, 5), masks({{a, 5}}, 3, 9)));
  EXPECT_TRUE(at::equal(together.narrow(0, 5, 6), masks({{b, 6}}, 3, 9)));
  EXPECT_TRUE(at::equal(masks({{b, 6}, {a, 5}}, 3, 9).narrow(0, 6, 5), together.narrow(0, 0, 5)));
  // A segment cut in two gives the same rows.
  EXPECT_TRUE(at::equal(masks({{b, 2}, {SegmentKey{12, 1, 2}, 4}}, 3, 9), masks({{b, 6}}, 3, 9)));
  EXPECT_FALSE(at::equal(masks({{a, 5}}, 4, 9), masks({{a, 5}}, 3, 9)));
  EXPECT_FALSE(at::equal(masks({{a, 5}}, 3, 8), masks({{a, 5}}, 3, 9)));
  EXPECT_FALSE(at::equal(masks({{b, 6}}, 3, 9), masks({{SegmentKey{12, 2, 0}, 6}}, 3, 9)));

  Tensor sum = at::zeros({12, 7});
  for (int64_t step = 0; step < 2000; ++step) sum += masks({{a, 12}}, step, 1);
  EXPECT_NEAR(sum.mean().item<double>() / 2000, 1.0, 0.01);  // the expectation is kept
  EXPECT_LT((sum / 2000 - 1).abs().max().item<double>(), 0.12);
}

TEST(Context, SaysWhatIsMissing) {
  BoundLayer layer;
  layer.partitions()[""] = segments_of({2});
  UnitContext ctx = layer.context();
  const auto text = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const PluginError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(text([&] { ctx.segments("windows"); }), "no partition 'windows' in this layout; it has: ''");
  Streams streams;
  streams.set("hidden", at::zeros({2, 2}));
  EXPECT_EQ(text([&] { streams["media"]; }), "no stream 'media' in this unit; it has: hidden");
  EXPECT_EQ(text([&] { ctx.attention({.heads = 3, .kv_heads = 2}); }),
            "attention: 3 heads cannot share 2 key/value heads");
  EXPECT_EQ(text([&] { ctx.dropout(at::zeros({2, 2}), 1.0, Site{}); }), "dropout: p must be below 1, found 1");
  EXPECT_EQ(text([&] { ctx.loss("balance", at::zeros({2}), Denominator::rows); }),
            "interior loss 'balance' must be a scalar sum, found shape [2]");
  EXPECT_EQ(text([&] { ctx[Param()]; }), "test: a parameter is read that was never declared");
}

TEST(Declare, RefusesWhatCannotBeMeant) {
  Declarations declarations;
  declarations.component = "backbone";
  const Declarer root(declarations);
  EXPECT_THROW(root.param("weight", {2, 2}, Init::zeros()), PluginError);  // outside a unit
  UnitDecl decl;
  decl.name = "embed";
  const Declarer unit = root.unit(decl);
  unit.param("weight", {4, 2}, Init::zeros());
  EXPECT_THROW(unit.param("weight", {4, 2}, Init::zeros()), PluginError);  // twice
  EXPECT_THROW(unit.param("empty", {0, 2}, Init::zeros()), PluginError);
  EXPECT_THROW(unit.param("fused", {4, 2}, Init::zeros(), {.parts = {{"q", 3}, {"k", 2}}}), PluginError);
  EXPECT_THROW(root.unit(decl), PluginError);
  unit.site("drop");
  EXPECT_THROW(unit.site("drop"), PluginError);
  EXPECT_EQ(declarations.params.size(), 1u);
  EXPECT_EQ(declarations.params[0].name, "backbone.embed.weight");
}

}  // namespace
}  // namespace loom::test
