// See the header. Scores are [key/value heads, heads of a group, queries, keys], in float for half types.
#include "core/nn/ops/attention_composed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/nn/kernels/row_threads.h"

namespace loom {
namespace {

constexpr double kHidden = -1e30;  // finite, so that a row without keys has numbers

struct Parts {
  const AttentionRange& range;
  const VarlenShape& shape;

  // [rows, heads * head_dim] -> [kv_heads, group, rows, head_dim], and back.
  Tensor split(const Tensor& x, int64_t begin, int64_t rows, int64_t group) const {
    return x.narrow(0, begin, rows).reshape({rows, shape.kv_heads, group, shape.head_dim}).permute({1, 2, 0, 3});
  }
  Tensor queries(const Tensor& q) const { return split(q, range.q_begin, range.q_rows, shape.heads / shape.kv_heads); }
  Tensor keys(const Tensor& k) const { return split(k, range.k_begin, range.k_rows, 1); }
  Tensor joined(const Tensor& x) const { return x.permute({2, 0, 1, 3}).reshape({x.size(2), -1}); }
  // [kv_heads, group, rows] <- [rows, heads]
  Tensor per_row(const Tensor& x) const {
    return x.narrow(0, range.q_begin, range.q_rows).reshape({range.q_rows, shape.kv_heads, -1}).permute({1, 2, 0});
  }

  // Which pairs do not see each other; undefined when all do.
  Tensor hidden(const Tensor& like) const {
    if (!shape.causal && (shape.window == 0 || shape.window >= range.k_rows)) return {};
    const auto options = like.options().dtype(at::kLong);
    const Tensor column = at::arange(range.k_rows, options).unsqueeze(0);
    Tensor end = at::full({range.q_rows, 1}, range.k_rows, options);
    if (shape.causal)
      end = at::arange(range.q_rows, options).unsqueeze(1) + (range.k_rows - range.q_rows + 1 + range.later);
    Tensor out = column >= end;
    if (shape.window > 0) out = at::logical_or(out, column < end - shape.window);
    return out;
  }
  Tensor scores(const Tensor& qh, const Tensor& kh, const Tensor& mask) const {
    const Tensor raw = at::matmul(qh, kh.transpose(-1, -2));
    const Tensor scaled = raw.to(rows::work_dtype(raw)) * shape.scale;
    return mask.defined() ? scaled.masked_fill(mask, kHidden) : scaled;
  }
};

Tensor without(const Tensor& x, const Tensor& mask, double value = 0) {
  return mask.defined() ? x.masked_fill(mask, value) : x;
}

// Pieces of rows in the order of their ranges -> all rows; what no range covers is `value`.
Tensor assemble(const std::vector<std::pair<int64_t, Tensor>>& pieces, int64_t rows, int64_t width, double value,
                const at::TensorOptions& options) {
  std::vector<std::pair<int64_t, Tensor>> sorted = pieces;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tensor> all;
  int64_t at = 0;
  const auto gap = [&](int64_t end) {
    if (end > at || (end == rows && all.empty())) all.push_back(at::full({end - at, width}, value, options));
  };
  for (const auto& [begin, piece] : sorted) {
    gap(begin);
    all.push_back(piece);
    at = begin + piece.size(0);
  }
  gap(rows);
  return all.size() == 1 ? all.front() : at::cat(all);
}

}  // namespace

Tensor attention_composed(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<AttentionRange>& ranges,
                          const VarlenShape& shape, Tensor* lse) {
  std::vector<std::pair<int64_t, Tensor>> outputs, sums;
  for (const AttentionRange& range : ranges) {
    if (range.q_rows == 0 || range.k_rows == 0) continue;
    const Parts parts{range, shape};
    const Tensor mask = parts.hidden(q);
    const Tensor scores = parts.scores(parts.queries(q), parts.keys(k), mask);
    const Tensor weights = without(at::softmax(scores, -1), mask).to(q.scalar_type());
    outputs.emplace_back(range.q_begin, parts.joined(at::matmul(weights, parts.keys(v))));
    if (lse == nullptr) continue;
    // Not logsumexp, which a dry run cannot do.
    const Tensor largest = scores.detach().amax(-1, true);
    Tensor sum = ((scores.detach() - largest).exp().sum(-1, true).log() + largest).squeeze(-1);
    if (mask.defined()) sum = sum.masked_fill(mask.all(-1), -std::numeric_limits<double>::infinity());
    sums.emplace_back(range.q_begin, sum.permute({2, 0, 1}).reshape({range.q_rows, shape.heads}));
  }
  if (lse != nullptr) {
    *lse = assemble(sums, q.size(0), shape.heads, -std::numeric_limits<double>::infinity(),
                    q.options().dtype(rows::work_dtype(q)));
  }
  return assemble(outputs, q.size(0), q.size(1), 0, q.options());
}

VarlenGradients attention_backward_composed(const Tensor& grad_output, const Tensor& q, const Tensor& k,
                                            const Tensor& v, const VarlenResult& result,
                                            const std::vector<AttentionRange>& ranges, const VarlenShape& shape) {
  VarlenGradients out{at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
  const Tensor grad = grad_output.to(q.scalar_type());
  for (const AttentionRange& range : ranges) {
    if (range.q_rows == 0 || range.k_rows == 0) continue;
    const Parts parts{range, shape};
    const Tensor mask = parts.hidden(q), qh = parts.queries(q), kh = parts.keys(k), gh = parts.queries(grad);
    const Tensor lse = parts.per_row(result.lse).unsqueeze(-1);
    const Tensor weights = without((parts.scores(qh, kh, mask) - lse).exp(), mask);
    const auto work = weights.scalar_type();
    const Tensor delta = (gh.to(work) * parts.queries(result.output).to(work)).sum(-1, true);
    const Tensor inner = at::matmul(gh, parts.keys(v).transpose(-1, -2)).to(work) - delta;
    const Tensor dscores = without(weights * inner, mask).mul(shape.scale).to(q.scalar_type());
    const Tensor narrow = weights.to(q.scalar_type());
    out.dq.narrow(0, range.q_begin, range.q_rows).copy_(parts.joined(at::matmul(dscores, kh)));
    out.dk.narrow(0, range.k_begin, range.k_rows)
        .add_(parts.joined(at::matmul(dscores.transpose(-1, -2), qh).sum(1, true)));
    out.dv.narrow(0, range.k_begin, range.k_rows)
        .add_(parts.joined(at::matmul(narrow.transpose(-1, -2), gh).sum(1, true)));
  }
  return out;
}

}  // namespace loom
