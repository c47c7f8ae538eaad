#include "core/nn/split_attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/nn/differentiable.h"
#include "core/nn/tile_attention.h"

namespace loom {
namespace {

int64_t even_border(int64_t n, int parts, int i) { return n * i / parts; }

std::vector<int> ranks_of(const std::vector<SegmentPiece>& pieces) {
  std::vector<int> out;
  for (const SegmentPiece& piece : pieces) {
    if (std::find(out.begin(), out.end(), piece.rank) == out.end()) out.push_back(piece.rank);
  }
  return out;
}

bool all_on(const std::vector<SegmentPiece>& pieces, int rank) {
  return pieces.size() <= 1 && (pieces.empty() || pieces.front().rank == rank);
}

Layout rows_layout(const SplitSegment& segment, int64_t heads) {
  Layout out;
  out.shape = {segment.rows, heads};
  for (const SegmentPiece& piece : segment.pieces) {
    out.boxes.push_back({piece.rank, {{piece.begin, 0}, {piece.rows, heads}}, piece.local_row * heads, {heads, 1}});
  }
  return out;
}

void add_owner(Layout& layout, int rank, int64_t rows, int64_t begin, int64_t end) {
  if (rows == 0 || end <= begin) return;
  layout.boxes.push_back({rank, {{0, begin}, {rows, end - begin}}, 0, {end - begin, 1}});
}

// Everything of one segment that several ranks share.
void plan_segment(const SplitSegment& q, const SplitSegment* k, int64_t heads, int64_t kv_heads, int rank,
                  AttentionPlan& plan) {
  const std::vector<int> ranks = ranks_of(q.pieces);
  const std::vector<HeadShare> shares = share_heads(heads, kv_heads, static_cast<int>(ranks.size()));
  Layout q_heads{{q.rows, heads}, {}}, kv_owners{{k == nullptr ? 0 : k->rows, kv_heads}, {}};
  AttentionPlan::Job job;
  bool mine = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    HeadShare share = shares[i];
    if (share.q_end == share.q_begin) share.kv_end = share.kv_begin;
    const int64_t kv_count = share.kv_end - share.kv_begin;
    int64_t kv_begin = share.kv_begin;
    if (fault(Fault::wrong_kv_group)) kv_begin = (kv_begin + 1) % (kv_heads - kv_count + 1);
    add_owner(q_heads, ranks[i], q.rows, share.q_begin, share.q_end);
    if (k != nullptr) add_owner(kv_owners, ranks[i], k->rows, kv_begin, kv_begin + kv_count);
    if (ranks[i] != rank || share.q_end == share.q_begin) continue;
    mine = true;
    job = {q.rows, k == nullptr ? 0 : k->rows, plan.q_elements, plan.kv_elements, share};
  }
  const int64_t q_at = plan.q_elements, kv_at = plan.kv_elements;
  append(plan.q, route_of(plan_transfers(rows_layout(q, heads), q_heads), rank), 0, q_at);
  if (k != nullptr && k->rows > 0)
    append(plan.kv, route_of(plan_transfers(rows_layout(*k, kv_heads), kv_owners), rank), 0, kv_at);
  if (mine) {
    plan.q_elements += job.q_rows * (job.share.q_end - job.share.q_begin);
    plan.kv_elements += job.k_rows * (job.share.kv_end - job.share.kv_begin);
    plan.jobs.push_back(job);
  }
  if (ranks.size() > 1 && std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) ++plan.split_segments;
}

struct JobTensors {
  Tensor q, k, v;
};

JobTensors views(const AttentionPlan::Job& job, const Tensor& q, const Tensor& k, const Tensor& v, int64_t width) {
  const int64_t q_cols = (job.share.q_end - job.share.q_begin) * width;
  const int64_t kv_cols = (job.share.kv_end - job.share.kv_begin) * width;
  const auto block = [width](const Tensor& flat, int64_t at, int64_t rows, int64_t cols) {
    return flat.narrow(0, at * width, rows * cols).view({rows, cols});
  };
  return {block(q, job.q_at, job.q_rows, q_cols), block(k, job.kv_at, job.k_rows, kv_cols),
          block(v, job.kv_at, job.k_rows, kv_cols)};
}

VarlenShape job_shape(const AttentionPlan::Job& job, VarlenShape shape) {
  shape.heads = job.share.q_end - job.share.q_begin;
  shape.kv_heads = job.share.kv_end - job.share.kv_begin;
  return shape;
}

std::vector<AttentionRange> job_range(const AttentionPlan::Job& job) { return {{0, job.q_rows, 0, job.k_rows}}; }

std::shared_ptr<HeadMoves> moves_of(const SplitCall& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  auto out = std::make_shared<HeadMoves>(call.comm, call.what, call.plan, call.shape.head_dim);
  out->start(AttentionInput::value, v);
  out->start(AttentionInput::key, k);
  out->start(AttentionInput::query, q);
  return out;
}

std::shared_ptr<const SplitAttention> compute(const SplitCall& call, const Tensor& q, const Tensor& k,
                                              const Tensor& v) {
  const c10::AutoGradMode no_grad(false);
  const AttentionPlan& plan = *call.plan;
  const VarlenShape& shape = call.shape;
  auto out = std::make_shared<SplitAttention>();
  if (!plan.tiles.empty()) {
    out->local = varlen_attention_forward(q, k, v, plan.local, shape);
    tile_attention_forward(call.comm, call.what, q, k, v, plan.tiles, shape, out->local);
    return out;
  }
  const int64_t width = shape.head_dim;
  out->local = varlen_attention_forward(q, k, v, plan.local, shape);
  const std::shared_ptr<HeadMoves> moves = call.moves != nullptr ? call.moves : moves_of(call, q, k, v);
  out->v = moves->finish(AttentionInput::value);
  out->k = moves->finish(AttentionInput::key);
  out->q = moves->finish(AttentionInput::query);
  Tensor blocks = at::zeros_like(out->q);
  for (const AttentionPlan::Job& job : plan.jobs) {
    const JobTensors t = views(job, out->q, out->k, out->v, width);
    out->jobs.push_back(varlen_attention_forward(t.q, t.k, t.v, job_range(job), job_shape(job, shape)));
    views(job, blocks, out->k, out->v, width).q.copy_(out->jobs.back().output);
  }
  // Every query element went to one place, so the adjoint of its route brings the output home.
  redistribute_adjoint(call.comm, call.what + " output", {{&plan.q, out->local.output, blocks, width}});
  return out;
}

std::vector<Tensor> backward(const SplitCall& call, const Tensor& grad, const Tensor& q, const Tensor& k,
                             const Tensor& v, const SplitAttention& saved) {
  const c10::AutoGradMode no_grad(false);
  Communicator& comm = call.comm;
  const AttentionPlan& plan = *call.plan;
  const VarlenShape& shape = call.shape;
  if (!plan.tiles.empty()) {
    const Tensor gradient = grad.to(q.scalar_type()).contiguous();
    VarlenGradients sums = varlen_attention_backward(gradient, q, k, v, saved.local, plan.local, shape);
    tile_attention_backward(comm, call.what, gradient, q, k, v, plan.tiles, shape, saved.local, sums);
    return {sums.dq, sums.dk, sums.dv};
  }
  const int64_t width = shape.head_dim;
  Tensor grad_blocks = at::zeros_like(saved.q);
  const Tensor rows = grad.to(q.scalar_type()).contiguous();
  redistribute(comm, call.what + " output gradient", {{&plan.q, rows, grad_blocks, width}});
  VarlenGradients local = varlen_attention_backward(rows, q, k, v, saved.local, plan.local, shape);
  const Tensor dq = at::zeros_like(saved.q), dk = at::zeros_like(saved.k), dv = at::zeros_like(saved.v);
  for (size_t i = 0; i < plan.jobs.size(); ++i) {
    const AttentionPlan::Job& job = plan.jobs[i];
    const JobTensors t = views(job, saved.q, saved.k, saved.v, width);
    const VarlenGradients g = varlen_attention_backward(views(job, grad_blocks, saved.k, saved.v, width).q, t.q, t.k,
                                                        t.v, saved.jobs[i], job_range(job), job_shape(job, shape));
    const JobTensors to = views(job, dq, dk, dv, width);
    to.q.copy_(g.dq);
    to.k.copy_(g.dk);
    to.v.copy_(g.dv);
  }
  redistribute_adjoint(
      comm, call.what + " q, k, v gradients",
      {{&plan.q, local.dq, dq, width}, {&plan.kv, local.dk, dk, width}, {&plan.kv, local.dv, dv, width}});
  return {local.dq, local.dk, local.dv};
}

}  // namespace

std::vector<HeadShare> share_heads(int64_t heads, int64_t kv_heads, int ranks) {
  std::vector<HeadShare> out(static_cast<size_t>(ranks));
  const int64_t group = heads / kv_heads;
  if (kv_heads >= ranks) {
    for (int i = 0; i < ranks; ++i) {
      const int64_t begin = even_border(kv_heads, ranks, i), end = even_border(kv_heads, ranks, i + 1);
      out[static_cast<size_t>(i)] = {begin * group, end * group, begin, end};
    }
    return out;
  }
  // Rank i belongs to one group; the ranks of a group divide its query heads.
  for (int64_t g = 0; g < kv_heads; ++g) {
    const int64_t first = ranks * g / kv_heads, last = ranks * (g + 1) / kv_heads;
    for (int64_t i = first; i < last; ++i) {
      const int parts = static_cast<int>(last - first), part = static_cast<int>(i - first);
      out[static_cast<size_t>(i)] = {g * group + even_border(group, parts, part),
                                     g * group + even_border(group, parts, part + 1), g, g + 1};
    }
  }
  return out;
}

AttentionPlan plan_attention(const Segments& queries, const Segments& keys, int64_t heads, int64_t kv_heads, int rank,
                             int tile_queries) {
  AttentionPlan plan;
  std::map<int64_t, const SplitSegment*> q_splits, k_splits;
  std::map<int64_t, int64_t> whole_keys;
  for (const SplitSegment& split : queries.splits) q_splits[split.id] = &split;
  for (const SplitSegment& split : keys.splits) k_splits[split.id] = &split;
  for (int64_t s = 0; s < keys.count(); ++s) whole_keys[keys.ids[static_cast<size_t>(s)]] = s;
  for (int64_t s = 0; s < queries.count(); ++s) {
    const int64_t id = queries.ids[static_cast<size_t>(s)];
    if (q_splits.count(id) != 0) continue;
    const auto key = whole_keys.find(id);
    plan.local.push_back({queries.offsets[s], queries.length(s),
                          key == whole_keys.end() ? 0 : keys.offsets[key->second],
                          key == whole_keys.end() ? 0 : keys.length(key->second)});
  }
  for (const SplitSegment& q : queries.splits) {
    if (q.pieces.empty()) continue;
    const auto found = k_splits.find(q.id);
    const SplitSegment* k = found == k_splits.end() ? nullptr : found->second;
    const int first = q.pieces.front().rank;
    if (all_on(q.pieces, first) && (k == nullptr || all_on(k->pieces, first))) {
      if (first != rank) continue;
      const bool keyed = k != nullptr && !k->pieces.empty();
      plan.local.push_back(
          {q.pieces.front().local_row, q.rows, keyed ? k->pieces.front().local_row : 0, keyed ? k->rows : 0});
      continue;
    }
    if (tile_queries == kByHeads) {
      plan_segment(q, k, heads, kv_heads, rank, plan);
      continue;
    }
    AttentionTile tile =
        plan_tile(q, k, rank, tile_queries, static_cast<double>(kv_heads) / static_cast<double>(heads));
    if (tile.me < 0) continue;
    if (tile.q[static_cast<size_t>(tile.me)].rows() > 0) ++plan.split_segments;
    plan.tiles.push_back(std::move(tile));
  }
  return plan;
}

struct HeadMoves::Way {
  Tensor jobs;
  Redistribution moves;
};

HeadMoves::HeadMoves(Communicator& comm, std::string what, std::shared_ptr<const AttentionPlan> plan, int64_t head_dim)
    : comm_(comm), what_(std::move(what)), plan_(std::move(plan)), head_dim_(head_dim) {}

HeadMoves::~HeadMoves() = default;

void HeadMoves::start(AttentionInput input, const Tensor& rows) {
  const bool query = input == AttentionInput::query;
  const Tensor mine = rows.detach();
  const Tensor jobs = at::zeros({(query ? plan_->q_elements : plan_->kv_elements) * head_dim_}, mine.options());
  const char* name = query ? " q" : input == AttentionInput::key ? " k" : " v";
  ways_.emplace(input, Way{jobs, {comm_, what_ + name, {{query ? &plan_->q : &plan_->kv, mine, jobs, head_dim_}}}});
}

Tensor HeadMoves::finish(AttentionInput input) {
  const auto way = ways_.find(input);
  LOOM_CHECK(way != ways_.end(), what_, ": an exchange that was not started");
  way->second.moves.finish();
  const Tensor jobs = way->second.jobs;
  ways_.erase(way);
  return jobs;
}

Tensor split_attention(const SplitCall& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor rows_q = q.contiguous(), rows_k = k.contiguous(), rows_v = v.contiguous();
  const std::shared_ptr<const SplitAttention> result =
      call.kept != nullptr ? call.kept : compute(call, rows_q.detach(), rows_k.detach(), rows_v.detach());
  if (call.computed != nullptr) *call.computed = result;
  SplitCall later{call.comm, call.what, call.plan, call.shape};
  return differentiable(result->local.output.detach(), {rows_q, rows_k, rows_v}, {rows_q, rows_k, rows_v},
                        [later = std::move(later), result](const BackwardCall& of) {
                          return backward(later, of.grad, of.saved[0], of.saved[1], of.saved[2], *result);
                        });
}

}  // namespace loom
