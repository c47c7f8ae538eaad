// The attention kernel against the formula, range by range, in float64; and the promise that ranges do not see each
// other by one bit.
#include "core/nn/varlen_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/nn/ops/attention_composed.h"
#include "core/nn/ops/attention_cpu.h"
#include "core/nn/ops/pieces.h"
#include "tests/core/nn/levels.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

struct Inputs {
  Tensor q, k, v, grad;
};

Inputs random_inputs(const VarlenShape& shape, int64_t q_rows, int64_t k_rows, at::ScalarType dtype) {
  const int64_t kv = shape.kv_heads * shape.head_dim;
  return {at::randn({q_rows, shape.heads * shape.head_dim}, dtype), at::randn({k_rows, kv}, dtype),
          at::randn({k_rows, kv}, dtype), at::randn({q_rows, shape.heads * shape.head_dim}, dtype)};
}

VarlenShape make_shape(int64_t heads, int64_t kv_heads, int64_t head_dim, bool causal, int64_t window = 0) {
  VarlenShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.causal = causal;
  shape.window = window;
  shape.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  return shape;
}

// Queries and keys one after another.
std::vector<AttentionRange> self_ranges(const std::vector<int64_t>& lengths) {
  std::vector<AttentionRange> ranges;
  int64_t begin = 0;
  for (const int64_t n : lengths) {
    ranges.push_back({begin, n, begin, n});
    begin += n;
  }
  return ranges;
}

Tensor visible(const AttentionRange& r, const VarlenShape& shape) {
  const Tensor column = at::arange(r.k_rows).unsqueeze(0);
  Tensor last = at::full({r.q_rows, 1}, r.k_rows - 1, at::kLong);
  if (shape.causal) last = at::arange(r.q_rows).unsqueeze(1) + (r.k_rows - r.q_rows);
  const Tensor seen = column <= last;
  return shape.window == 0 ? seen : at::logical_and(seen, column > last - shape.window);
}

// By ATen, in float64, with autograd.
Tensor reference(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                 const VarlenShape& shape) {
  Tensor out = at::zeros_like(q);
  const int64_t group = shape.heads / shape.kv_heads, d = shape.head_dim;
  for (const AttentionRange& r : ranges) {
    if (r.q_rows == 0 || r.k_rows == 0) continue;
    const Tensor hidden = visible(r, shape).logical_not();
    const Tensor blind = hidden.all(1, true);
    std::vector<Tensor> heads;
    for (int64_t h = 0; h < shape.heads; ++h) {
      const Tensor qh = q.narrow(0, r.q_begin, r.q_rows).narrow(1, h * d, d);
      const Tensor kh = k.narrow(0, r.k_begin, r.k_rows).narrow(1, h / group * d, d);
      const Tensor vh = v.narrow(0, r.k_begin, r.k_rows).narrow(1, h / group * d, d);
      const Tensor scores = at::matmul(qh, kh.t()).mul(shape.scale).masked_fill(hidden, -1e300);
      heads.push_back(at::matmul(at::softmax(scores, 1).masked_fill(blind, 0.0), vh));
    }
    const Tensor rows = at::arange(r.q_begin, r.q_begin + r.q_rows, at::kLong);
    out = out.index_add(0, rows, at::cat(heads, 1));
  }
  return out;
}

struct Outcome {
  Tensor out, dq, dk, dv;
};

template <class F>
Outcome outcome(const Inputs& in, const F& call) {
  const Tensor q = in.q.detach().requires_grad_(), k = in.k.detach().requires_grad_(),
               v = in.v.detach().requires_grad_();
  const Tensor out = call(q, k, v);
  const auto grads = torch::autograd::grad({out}, {q, k, v}, {in.grad});
  return {out.detach(), grads[0], grads[1], grads[2]};
}

Outcome ours(const Inputs& in, const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  return outcome(in, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return varlen_attention(q, k, v, ranges, shape, nullptr, nullptr);
  });
}

// With a window of one key nothing depends on q and k: their gradients are what rounding leaves of dv's size.
void expect_close(const Outcome& a, const Outcome& b, double tolerance, bool one_key = false) {
  EXPECT_LE(relative_difference(a.out, b.out), tolerance) << "output";
  EXPECT_LE(relative_difference(a.dv, b.dv), tolerance) << "dv";
  if (one_key) {
    const double size = 5 * tolerance * b.dv.norm().item<double>();
    EXPECT_LE(a.dq.norm().item<double>(), size) << "dq";
    EXPECT_LE(a.dk.norm().item<double>(), size) << "dk";
    return;
  }
  EXPECT_LE(relative_difference(a.dq, b.dq), tolerance) << "dq";
  EXPECT_LE(relative_difference(a.dk, b.dk), tolerance) << "dk";
}

void compare(const std::vector<AttentionRange>& ranges, const VarlenShape& shape, int64_t q_rows, int64_t k_rows) {
  SCOPED_TRACE(::testing::Message() << shape.heads << "/" << shape.kv_heads << " heads of " << shape.head_dim
                                    << ", causal " << shape.causal << ", window " << shape.window);
  const Inputs in = random_inputs(shape, q_rows, k_rows, at::kDouble);
  const Outcome expected =
      outcome(in, [&](const Tensor& q, const Tensor& k, const Tensor& v) { return reference(q, k, v, ranges, shape); });
  expect_close(ours(in, ranges, shape), expected, 1e-13, shape.window == 1);
  const Inputs narrow{in.q.to(at::kFloat), in.k.to(at::kFloat), in.v.to(at::kFloat), in.grad.to(at::kFloat)};
  expect_close(ours(narrow, ranges, shape), expected, 2e-6, shape.window == 1);
}

TEST(VarlenAttention, IsTheFormula) {
  at_every_level([] {
    at::manual_seed(1);
    for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 1}, {3, 3}, {9, 3}}) {
      for (const bool causal : {false, true}) {
        const int64_t head_dim = heads == 1 ? 64 : heads == 3 ? 16 : 20;
        compare(self_ranges({0, 1, 7, 31, 200}), make_shape(heads, kv_heads, head_dim, causal), 239, 239);
      }
    }
    compare(self_ranges({33, 70}), make_shape(2, 1, 40, true, 9), 103, 103);
    compare(self_ranges({33, 70}), make_shape(2, 2, 34, false, 65), 103, 103);
    compare(self_ranges({129}), make_shape(1, 1, 3, true, 2), 129, 129);
  });
}

TEST(VarlenAttention, OddShapes) {
  at_every_level([] {
    at::manual_seed(8);
    int turn = 0;
    for (const int64_t head_dim : {16, 20, 64, 80, 128, 256}) {
      for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 1}, {9, 3}}) {
        const int64_t window = std::vector<int64_t>{0, 1, 5, 300}[static_cast<size_t>(turn % 4)];
        const bool causal = turn % 3 != 1;
        // More than two blocks of keys, and lengths around the sizes of tiles.
        const std::vector<int64_t> lengths =
            heads == 1 ? std::vector<int64_t>{0, 1, 7, 31, 290} : std::vector<int64_t>{31, 0, 65, 7, 1};
        const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
        compare(self_ranges(lengths), make_shape(heads, kv_heads, head_dim, causal, window), rows, rows);
        ++turn;
      }
    }
    compare(self_ranges({0, 1, 7, 31, 1000}), make_shape(3, 1, 16, true), 1039, 1039);
    compare(self_ranges({1000, 31, 7, 1, 0}), make_shape(1, 1, 20, true, 300), 1039, 1039);
    compare(self_ranges({31, 1000, 1, 7}), make_shape(2, 2, 16, false, 300), 1039, 1039);
    compare({{0, 40, 0, 700}}, make_shape(2, 1, 64, true, 333), 40, 700);
    compare({{0, 700, 0, 300}}, make_shape(1, 1, 64, true), 700, 300);
  });
}

TEST(VarlenAttention, TheCompositionIsTheFormula) {
  const ScopedPieces composed(Pieces::composed);
  at::manual_seed(9);
  for (const bool causal : {false, true}) {
    for (const int64_t window : {0, 9})
      compare(self_ranges({5, 0, 1, 40}), make_shape(4, 2, 12, causal, window), 46, 46);
    compare({{40, 10, 0, 50}, {2, 30, 20, 45}, {35, 5, 60, 0}, {50, 0, 70, 5}, {55, 40, 80, 11}},
            make_shape(4, 2, 24, causal), 100, 100);
  }
  const VarlenShape shape = make_shape(2, 1, 8, true);
  const Inputs in = random_inputs(shape, 9, 4, at::kDouble);
  const std::vector<AttentionRange> ranges{{0, 5, 0, 3}, {6, 2, 3, 0}};
  const VarlenResult found = varlen_attention_forward(in.q, in.k, in.v, ranges, shape);
  const VarlenGradients grads = varlen_attention_backward(in.grad, in.q, in.k, in.v, found, ranges, shape);
  const ScopedPieces fused(Pieces::fused);
  const VarlenResult expected = varlen_attention_forward(in.q, in.k, in.v, ranges, shape);
  EXPECT_TRUE(at::equal(at::isneginf(found.lse), at::isneginf(expected.lse)));
  EXPECT_LE(relative_difference(found.lse.exp(), expected.lse.exp()), 1e-13);
  const VarlenGradients same = varlen_attention_backward(in.grad, in.q, in.k, in.v, expected, ranges, shape);
  expect_close({found.output, grads.dq, grads.dk, grads.dv}, {expected.output, same.dq, same.dk, same.dv}, 1e-13);
}

TEST(VarlenAttention, CrossRangesInAnyOrder) {
  at_every_level([] {
    at::manual_seed(2);
    // Gaps on both sides, keys shared by two ranges, queries without keys, keys without queries, more queries than
    // keys.
    const std::vector<AttentionRange> ranges{
        {40, 10, 0, 50}, {2, 30, 20, 45}, {35, 5, 60, 0}, {50, 0, 70, 5}, {55, 40, 80, 11}};
    for (const bool causal : {false, true}) {
      compare(ranges, make_shape(4, 2, 24, causal), 100, 100);
      compare(ranges, make_shape(3, 3, 16, causal, 8), 100, 100);
    }
  });
}

TEST(VarlenAttention, RowsWithoutKeysAreZero) {
  const VarlenShape shape = make_shape(2, 1, 8, true);
  const std::vector<AttentionRange> ranges{{0, 5, 0, 3}, {6, 2, 3, 0}};
  const Inputs in = random_inputs(shape, 9, 4, at::kFloat);
  const VarlenResult result = varlen_attention_forward(in.q, in.k, in.v, ranges, shape);
  for (const int64_t row : {0, 1, 5, 6, 7, 8}) {
    EXPECT_EQ(result.output[row].abs().sum().item<float>(), 0) << row;
    EXPECT_TRUE(at::isneginf(result.lse[row]).all().item<bool>()) << row;
  }
  const Outcome found = ours(in, ranges, shape);
  EXPECT_EQ(found.dq.narrow(0, 0, 2).abs().sum().item<float>(), 0);
  EXPECT_EQ(found.dk[3].abs().sum().item<float>(), 0);
  EXPECT_TRUE(at::isfinite(found.dq).all().item<bool>());
}

TEST(VarlenAttention, LargeScoresStayFinite) {
  const VarlenShape shape = make_shape(1, 1, 16, false);
  Inputs in = random_inputs(shape, 20, 20, at::kFloat);
  in.q.mul_(1e4);
  const Outcome found = ours(in, self_ranges({20}), shape);
  for (const Tensor& t : {found.out, found.dq, found.dk, found.dv}) EXPECT_TRUE(at::isfinite(t).all().item<bool>());
  in.k[3][0].fill_(std::nanf(""));
  EXPECT_TRUE(at::isnan(ours(in, self_ranges({20}), shape).out).all().item<bool>()) << "a NaN must not disappear";
}

Outcome rows_of(const Outcome& o, int64_t begin, int64_t rows) {
  return {o.out.narrow(0, begin, rows), o.dq.narrow(0, begin, rows), o.dk.narrow(0, begin, rows),
          o.dv.narrow(0, begin, rows)};
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(same_bits(a.out, b.out)) << "output";
  EXPECT_TRUE(same_bits(a.dq, b.dq)) << "dq";
  EXPECT_TRUE(same_bits(a.dk, b.dk)) << "dk";
  EXPECT_TRUE(same_bits(a.dv, b.dv)) << "dv";
}

TEST(VarlenAttention, SegmentsAreIndependentToTheBit) {
  const ScopedPieces fused(Pieces::fused);
  at_every_level([] {
    at::manual_seed(3);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const bool causal : {false, true}) {
        const VarlenShape shape = make_shape(6, 2, 24, causal);
        const std::vector<int64_t> lengths{37, 90, 5};
        Inputs in = random_inputs(shape, 132, 132, dtype);
        const Outcome before = ours(in, self_ranges(lengths), shape);
        const auto part = [](const Tensor& t) { return t.narrow(0, 37, 90).clone(); };
        const Inputs alone{part(in.q), part(in.k), part(in.v), part(in.grad)};
        expect_same_bits(ours(alone, self_ranges({90}), shape), rows_of(before, 37, 90));
        for (Tensor* t : {&in.q, &in.k, &in.v, &in.grad}) t->narrow(0, 0, 37).normal_();
        const Outcome after = ours(in, self_ranges(lengths), shape);
        expect_same_bits(rows_of(after, 37, 95), rows_of(before, 37, 95));
        EXPECT_FALSE(same_bits(after.out.narrow(0, 0, 37), before.out.narrow(0, 0, 37)));
      }
    }
  });
}

void compare_threads(const std::vector<AttentionRange>& ranges, const VarlenShape& shape, int64_t rows) {
  const Inputs in = random_inputs(shape, rows, rows, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = ours(in, ranges, shape);
  for (const int more : {2, 3, 7}) {
    at::set_num_threads(more);
    expect_same_bits(ours(in, ranges, shape), one);
  }
  at::set_num_threads(threads);
}

TEST(VarlenAttention, ThreadsDoNotChangeABit) {
  const ScopedPieces fused(Pieces::fused);
  at_every_level([] {
    at::manual_seed(4);
    compare_threads(self_ranges({100, 1, 199}), make_shape(4, 4, 32, true), 300);
    // One range of few heads: several threads share its rows and its blocks of keys.
    compare_threads(self_ranges({1100}), make_shape(1, 1, 32, true), 1100);
    compare_threads(self_ranges({1100}), make_shape(2, 1, 16, false), 1100);
    compare_threads(self_ranges({1100}), make_shape(1, 1, 16, true, 300), 1100);
    compare_threads(self_ranges({400, 9, 600}), make_shape(3, 1, 128, true), 1009);
    compare_threads({{0, 500, 100, 600}, {500, 300, 0, 300}, {800, 90, 750, 300}}, make_shape(2, 2, 16, true), 1100);
  });
}

TEST(VarlenAttention, ColumnSlicesNeedNoCopy) {
  at::manual_seed(5);
  const VarlenShape shape = make_shape(2, 1, 16, true);
  const Tensor fused = at::randn({50, 64});
  const std::vector<Tensor> parts = fused.split_with_sizes({32, 16, 16}, 1);
  const auto ranges = self_ranges({20, 30});
  const ScopedPieces pieces(Pieces::fused);
  const VarlenResult a = varlen_attention_forward(parts[0], parts[1], parts[2], ranges, shape);
  const VarlenResult b =
      varlen_attention_forward(parts[0].contiguous(), parts[1].contiguous(), parts[2].contiguous(), ranges, shape);
  EXPECT_TRUE(same_bits(a.output, b.output));
}

TEST(VarlenAttention, HalfTypesAreWidened) {
  at::manual_seed(6);
  const VarlenShape shape = make_shape(2, 2, 16, true);
  const Inputs in = random_inputs(shape, 40, 40, at::kBFloat16);
  const Inputs wide{in.q.to(at::kFloat), in.k.to(at::kFloat), in.v.to(at::kFloat), in.grad.to(at::kFloat)};
  const Outcome found = ours(in, self_ranges({40}), shape);
  EXPECT_EQ(found.dk.scalar_type(), at::kBFloat16);
  expect_close(found, ours(wide, self_ranges({40}), shape), 1e-2);
}

TEST(VarlenAttention, KeptResultsReplaceTheForward) {
  at::manual_seed(7);
  const VarlenShape shape = make_shape(2, 2, 16, true);
  const auto ranges = self_ranges({40});
  const Inputs in = random_inputs(shape, 40, 40, at::kDouble);
  VarlenResult kept;
  const auto first = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return varlen_attention(q, k, v, ranges, shape, nullptr, &kept);
  };
  const Outcome before = outcome(in, first);
  const auto second = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return varlen_attention(q, k, v, ranges, shape, &kept, nullptr);
  };
  expect_same_bits(outcome(in, second), before);
  EXPECT_FALSE(kept.output.requires_grad());
  const Tensor shifted = before.out + 1;
  kept.output.add_(1);
  EXPECT_TRUE(same_bits(outcome(in, second).out, shifted)) << "the forward was computed again";
}

TEST(VarlenAttention, WrongShapesAreRefused) {
  const VarlenShape shape = make_shape(2, 2, 16, true);
  const Inputs in = random_inputs(shape, 10, 10, at::kFloat);
  EXPECT_THROW(varlen_attention_forward(in.q.narrow(1, 0, 16), in.k, in.v, self_ranges({10}), shape), InternalError);
  EXPECT_THROW(varlen_attention_forward(in.q, in.k, in.v, self_ranges({11}), shape), InternalError);
  EXPECT_THROW(varlen_attention_forward(in.q, in.k, in.v.to(at::kDouble), self_ranges({10}), shape), InternalError);
  EXPECT_THROW(varlen_attention_forward(in.q, in.k, in.v, {{0, 5, 0, 5}, {4, 3, 5, 3}}, shape), InternalError);
}

// Parts of a split segment meet at any diagonal: keys that end before the queries do, windows that lie beyond them, and
// rows without keys at both ends, over several blocks and threads.
TEST(VarlenAttention, RangesWithABorderAnywhereEqualTheComposition) {
  const Philox random({5, Purpose::sample});
  uint64_t next = 0;
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(static_cast<uint64_t>(n), next++)); };
  int64_t before = 0, beyond = 0;
  for (int round = 0; round < 60; ++round) {
    at::manual_seed(static_cast<uint64_t>(round));
    VarlenShape shape{.heads = 4, .kv_heads = 2, .head_dim = 16, .causal = true, .scale = 0.3};
    shape.window = round % 3 == 0 ? 0 : 1 + below(300);
    const int64_t q_rows = 1 + below(500), k_rows = 1 + below(700), ahead = below(1200) - 600;
    const std::vector<AttentionRange> ranges{{3, q_rows, 2, k_rows, ahead}};
    const at::TensorOptions options(at::kDouble);
    const Tensor q = at::randn({q_rows + 5, 64}, options), k = at::randn({k_rows + 4, 32}, options),
                 v = at::randn({k_rows + 4, 32}, options), grad = at::randn({q_rows + 5, 64}, options);
    VarlenResult composed;
    composed.output = attention_composed(q, k, v, ranges, shape, &composed.lse);
    const VarlenResult ours = attention_forward_cpu(q, k, v, ranges, shape);
    EXPECT_TRUE(at::allclose(ours.output, composed.output, 1e-11, 1e-11)) << round;
    EXPECT_TRUE(at::allclose(ours.lse, composed.lse, 1e-11, 1e-11)) << round;
    const VarlenGradients wanted = attention_backward_composed(grad, q, k, v, composed, ranges, shape);
    VarlenGradients got{at::full_like(q, 7), at::full_like(k, 7), at::full_like(v, 7)};
    attention_backward_cpu(grad, q, k, v, ours, ranges, shape, got);
    EXPECT_TRUE(at::allclose(got.dq, wanted.dq, 1e-11, 1e-11)) << round;
    EXPECT_TRUE(at::allclose(got.dk, wanted.dk, 1e-11, 1e-11)) << round;
    EXPECT_TRUE(at::allclose(got.dv, wanted.dv, 1e-11, 1e-11)) << round;
    const Tensor without = (composed.lse.narrow(0, 3, q_rows).select(1, 0) < -1e300);
    before += without[0].item<bool>() ? 1 : 0;
    beyond += without[q_rows - 1].item<bool>() ? 1 : 0;
  }
  EXPECT_GT(before, 5);
  EXPECT_GT(beyond, 5);
}

}  // namespace
}  // namespace loom::test
