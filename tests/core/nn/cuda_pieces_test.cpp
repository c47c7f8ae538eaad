// The way from ranges of rows to the GPU's kernels and back, without a GPU: operations of ATen that exist on CUDA alone
// get stand-ins on the CPU, which take and give what those take and give (offsets of dense rows; FlashAttention's
// log-sum-exp as [heads, rows] with +inf for rows without keys, the memory-efficient one as [ranges, heads, longest in
// blocks of 32]). What they compute is the composition, so a difference is a fault of gathering, trimming, padding or
// scattering. Whether the real kernels keep to this only a GPU can tell: tests/gpu.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "core/nn/ops/attention_composed.h"

// The files themselves, under another name: a build without CUDA leaves them out.
#define cuda_pieces cuda_pieces_under_test
#define cuda_layout cuda_layout_under_test
#define CudaLayout CudaLayoutUnderTest
#include "core/nn/ops/cuda_layout.cpp"
#include "core/nn/ops/cuda_pieces.cpp"
#undef CudaLayout
#undef cuda_layout
#undef cuda_pieces

namespace loom {
namespace {

using OptionalTensor = std::optional<Tensor>;

int calls = 0;

std::vector<AttentionRange> ranges_of(const Tensor& q_offsets, const Tensor& k_offsets) {
  EXPECT_EQ(q_offsets.scalar_type(), at::kInt);
  EXPECT_EQ(k_offsets.scalar_type(), at::kInt);
  EXPECT_EQ(q_offsets.size(0), k_offsets.size(0));
  const auto *q = q_offsets.const_data_ptr<int32_t>(), *k = k_offsets.const_data_ptr<int32_t>();
  std::vector<AttentionRange> out;
  for (int64_t i = 0; i + 1 < q_offsets.size(0); ++i) out.push_back({q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i]});
  return out;
}

void check_longest(const std::vector<AttentionRange>& ranges, int64_t q, int64_t k) {
  int64_t longest_q = 0, longest_k = 0;
  for (const AttentionRange& r : ranges) {
    EXPECT_GT(r.q_rows, 0);
    EXPECT_GT(r.k_rows, 0);
    longest_q = std::max(longest_q, r.q_rows);
    longest_k = std::max(longest_k, r.k_rows);
  }
  EXPECT_EQ(longest_q, q);
  EXPECT_EQ(longest_k, k);
}

Tensor matrix(const Tensor& x) { return x.reshape({-1, x.size(-2) * x.size(-1)}); }

VarlenShape shape_of(const Tensor& q, const Tensor& k, bool causal, double scale, int64_t window) {
  return {q.size(-2), k.size(-2), q.size(-1), causal, scale, window};
}

int64_t window_given(bool causal, std::optional<int64_t> left, std::optional<int64_t> right) {
  if (!left.has_value()) return 0;
  EXPECT_TRUE(causal && right == 0);
  return *left + 1;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                                 const OptionalTensor& q_offsets,
                                                                 const OptionalTensor& k_offsets, int64_t longest_q,
                                                                 int64_t longest_k, bool causal, double scale,
                                                                 std::optional<int64_t> left,
                                                                 std::optional<int64_t> right) {
  ++calls;
  EXPECT_EQ(q.size(2) % 8, 0);
  const auto ranges = ranges_of(*q_offsets, *k_offsets);
  check_longest(ranges, longest_q, longest_k);
  Tensor lse;
  const Tensor out = attention_composed(matrix(q), matrix(k), matrix(v), ranges,
                                        shape_of(q, k, causal, scale, window_given(causal, left, right)), &lse);
  lse = lse.masked_fill(lse == -kInfinity, kInfinity);
  return {out.view(q.sizes()), lse.t().contiguous(), {}, {}, {}};
}

// Its last arguments, which nobody here gives, differ by LibTorch's version.
template <class Schema>
struct FlashForward;
template <class Result, class... Given>
struct FlashForward<Result(Given...)> {
  static Result call(Given... given) {
    const auto all = std::tie(given...);
    const auto number = [](const std::optional<c10::SymInt>& x) {
      return x.has_value() ? std::optional<int64_t>(x->expect_int()) : std::nullopt;
    };
    return flash_forward(std::get<0>(all), std::get<1>(all), std::get<2>(all), std::get<3>(all), std::get<4>(all),
                         std::get<5>(all).expect_int(), std::get<6>(all).expect_int(), std::get<8>(all),
                         *std::get<10>(all), number(std::get<11>(all)), number(std::get<12>(all)));
  }
};

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const Tensor& out, const Tensor& lse, const Tensor& q_offsets,
                                                  const Tensor& k_offsets, int64_t longest_q, int64_t longest_k,
                                                  double /*dropout*/, bool causal, const Tensor& /*state*/,
                                                  const Tensor& /*unused*/, std::optional<double> scale,
                                                  std::optional<int64_t> left, std::optional<int64_t> right) {
  ++calls;
  EXPECT_EQ(lse.sizes(), (std::vector<int64_t>{q.size(1), q.size(0)}));
  EXPECT_TRUE(lse.is_contiguous() && at::isfinite(lse).all().item<bool>());
  const auto ranges = ranges_of(q_offsets, k_offsets);
  check_longest(ranges, longest_q, longest_k);
  const VarlenGradients g =
      attention_backward_composed(matrix(grad), matrix(q), matrix(k), matrix(v), {matrix(out), lse.t().contiguous()},
                                  ranges, shape_of(q, k, causal, *scale, window_given(causal, left, right)));
  return {g.dq.view(q.sizes()), g.dk.view(k.sizes()), g.dv.view(v.sizes())};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt> efficient_forward(
    const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& /*bias*/, const OptionalTensor& q_offsets,
    const OptionalTensor& k_offsets, std::optional<int64_t> longest_q, std::optional<int64_t> longest_k,
    double /*dropout*/, int64_t mask, bool wants_lse, std::optional<double> scale, const OptionalTensor& /*used*/,
    std::optional<int64_t> /*window*/) {
  ++calls;
  EXPECT_TRUE(wants_lse && (mask == 0 || mask == 2));
  EXPECT_EQ(q.size(2), k.size(2));
  const auto ranges = ranges_of(*q_offsets, *k_offsets);
  check_longest(ranges, *longest_q, *longest_k);
  Tensor lse;
  const Tensor out =
      attention_composed(matrix(q), matrix(k), matrix(v), ranges, shape_of(q, k, mask == 2, *scale, 0), &lse);
  const int64_t padded = (*longest_q + 31) / 32 * 32;
  const Tensor blocks =
      at::full({static_cast<int64_t>(ranges.size()), q.size(2), padded}, kInfinity, q.options().dtype(at::kFloat));
  for (size_t r = 0; r < ranges.size(); ++r) {
    blocks[static_cast<int64_t>(r)]
        .narrow(1, 0, ranges[r].q_rows)
        .copy_(lse.narrow(0, ranges[r].q_begin, ranges[r].q_rows).t());
  }
  return {out.view(q.sizes()), blocks, {}, {}, *longest_q, *longest_k};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const OptionalTensor& /*bias*/,
    const Tensor& out, const OptionalTensor& q_offsets, const OptionalTensor& k_offsets, int64_t longest_q,
    int64_t longest_k, const Tensor& lse, double /*dropout*/, const Tensor& /*seed*/, const Tensor& /*offset*/,
    int64_t mask, bool /*bias gradient*/, std::optional<double> scale, std::optional<int64_t> /*splits*/,
    std::optional<int64_t> /*window*/, bool /*shared*/) {
  ++calls;
  const auto ranges = ranges_of(*q_offsets, *k_offsets);
  check_longest(ranges, longest_q, longest_k);
  EXPECT_EQ(lse.sizes(),
            (std::vector<int64_t>{static_cast<int64_t>(ranges.size()), q.size(2), (longest_q + 31) / 32 * 32}));
  std::vector<Tensor> rows;
  for (size_t r = 0; r < ranges.size(); ++r)
    rows.push_back(lse[static_cast<int64_t>(r)].narrow(1, 0, ranges[r].q_rows).t());
  const VarlenGradients g =
      attention_backward_composed(matrix(grad), matrix(q), matrix(k), matrix(v), {matrix(out), at::cat(rows)}, ranges,
                                  shape_of(q, k, mask == 2, *scale, 0));
  return {g.dq.view(q.sizes()), g.dk.view(k.sizes()), g.dv.view(v.sizes()), {}};
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_flash_attention_forward", TORCH_FN(FlashForward<at::_ops::_flash_attention_forward::schema>::call));
  m.impl("_flash_attention_backward", TORCH_FN(flash_backward));
  m.impl("_efficient_attention_forward", TORCH_FN(efficient_forward));
  m.impl("_efficient_attention_backward", TORCH_FN(efficient_backward));
}

struct Case {
  const char* name;
  std::vector<AttentionRange> ranges;
  int64_t q_rows, k_rows;
};

const std::vector<Case> kCases{
    {"dense", {{0, 7, 0, 7}, {7, 33, 7, 33}, {40, 1, 40, 1}}, 41, 41},
    {"gaps", {{2, 5, 1, 5}, {9, 4, 8, 6}}, 15, 16},
    {"out of order", {{6, 6, 0, 6}, {0, 6, 6, 6}}, 12, 12},
    {"empty ranges", {{0, 0, 0, 4}, {0, 3, 4, 0}, {3, 4, 4, 4}, {7, 0, 8, 0}}, 7, 8},
    {"more queries than keys", {{0, 9, 0, 4}, {9, 3, 4, 3}}, 12, 7},
    {"shared keys", {{0, 4, 0, 6}, {4, 5, 2, 6}}, 9, 8},
    {"nothing", {{0, 0, 0, 0}}, 3, 2},
};

void check(const Case& c, const VarlenShape& shape, at::ScalarType type) {
  at::manual_seed(3);
  const auto random = [&](int64_t rows, int64_t heads) { return at::randn({rows, heads * shape.head_dim}).to(type); };
  const Tensor q = random(c.q_rows, shape.heads), k = random(c.k_rows, shape.kv_heads),
               v = random(c.k_rows, shape.kv_heads), grad = random(c.q_rows, shape.heads);
  const CudaPieces& pieces = *cuda_pieces_under_test();
  VarlenResult wanted;
  wanted.output = attention_composed(q, k, v, c.ranges, shape, &wanted.lse);
  const VarlenResult found = pieces.attention_forward(q, k, v, c.ranges, shape);
  const double tolerance = type == at::kFloat ? 1e-5 : 0.03;
  const auto same = [&](const char* what, const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.sizes(), b.sizes()) << what;
    EXPECT_TRUE(at::allclose(a.to(at::kDouble), b.to(at::kDouble), tolerance, tolerance)) << what;
  };
  EXPECT_EQ(found.output.scalar_type(), type);
  EXPECT_EQ(found.lse.scalar_type(), at::kFloat);
  same("output", found.output, wanted.output);
  same("log-sum-exp", found.lse, wanted.lse);
  const VarlenGradients expected = attention_backward_composed(grad, q, k, v, wanted, c.ranges, shape);
  const VarlenGradients gradients = pieces.attention_backward(grad, q, k, v, found, c.ranges, shape);
  same("dq", gradients.dq, expected.dq);
  same("dk", gradients.dk, expected.dk);
  same("dv", gradients.dv, expected.dv);
}

TEST(CudaPieces, RowsReachTheKernelsAndComeBack) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Case& c : kCases) {
      for (const bool causal : {false, true}) {
        for (const int64_t window : {0, 3}) {
          for (const auto& [heads, kv_heads, width] : {std::tuple{4, 2, 16}, {3, 3, 20}, {6, 1, 8}}) {
            SCOPED_TRACE(testing::Message()
                         << c.name << ", " << c10::toString(type) << (causal ? ", causal" : "") << ", window " << window
                         << ", " << heads << "/" << kv_heads << " heads of " << width);
            check(c, {heads, kv_heads, width, causal, 0.3, window}, type);
          }
        }
      }
    }
  }
  EXPECT_GT(calls, 100);
}

TEST(CudaPieces, DoubleAndWindowsInFloatAreComposed) {
  const int before = calls;
  check(kCases[0], {2, 1, 16, true, 0.2, 5}, at::kFloat);
  EXPECT_EQ(calls, before);
  const Tensor x = at::randn({7, 16}, at::kDouble);
  EXPECT_EQ(
      cuda_pieces_under_test()->attention_forward(x, x, x, {{0, 7, 0, 7}}, {1, 1, 16, true, 1.0, 0}).lse.scalar_type(),
      at::kDouble);
  EXPECT_EQ(calls, before);
}

TEST(CudaPieces, LayersOfAStepShareALayout) {
  const VarlenShape shape{1, 1, 8, true, 1.0, 0};
  const c10::Device cpu(at::kCPU);
  const auto first = cuda_layout_under_test(kCases[1].ranges, shape, 15, 16, cpu);
  EXPECT_EQ(first, cuda_layout_under_test(kCases[1].ranges, shape, 15, 16, cpu));
  EXPECT_NE(first, cuda_layout_under_test(kCases[1].ranges, shape, 16, 16, cpu));
  EXPECT_NE(first, cuda_layout_under_test(kCases[2].ranges, shape, 15, 16, cpu));
}

}  // namespace
}  // namespace loom
