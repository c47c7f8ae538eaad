// Queries of the row of the tile are collected first, then keys pass by; partial outputs go home and are merged by
// their log-sum-exps.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <limits>

#include "core/base/faults.h"
#include "core/nn/tile_attention.h"
#include "core/nn/tile_pass.h"

namespace loom {
namespace {

using tiles::ParcelPtr;
using tiles::Pieces;
using tiles::Schedule;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

class ForwardPass : tiles::TilePass {
 public:
  using TilePass::TilePass;

  // `self` is this, and lives as long as its stages.
  void add_to(Schedule& schedule, const std::shared_ptr<ForwardPass>& self, VarlenResult& result) {
    queries_.resize(static_cast<size_t>(tile_.queries));
    schedule.add([self] { return self->pack(); }, [self] { self->add_queries(0, self->q_); });
    for (int step = 1; step < tile_.queries; ++step) add_query_stage(schedule, self, step);
    for (int step = 1; step < tile_.keys(); ++step) add_key_stage(schedule, self, step);
    const int worked = schedule.add([self] { self->forget_packed(); });
    for (int step = 1; step < tile_.queries; ++step) add_output_stage(schedule, self, step, worked);
    schedule.add([self, &result] {
      const Queries& mine = self->queries_[0];
      tiles::write_rows(result.output, self->own_queries(), mine.output);
      tiles::write_rows(result.lse, self->own_queries(), mine.lse);
    });
  }

 private:
  struct Queries {
    int member = 0;
    Tensor q, output, lse;  // output and lse in working precision
  };

  static void add_query_stage(Schedule& schedule, const std::shared_ptr<ForwardPass>& self, int step) {
    const auto got = std::make_shared<ParcelPtr>();
    schedule.add([self, got, step] { return self->move_queries(" queries", step, self->query_pieces(step), *got); },
                 [self, got, step] { self->add_queries(step, (**got)[0]); });
  }
  static void add_key_stage(Schedule& schedule, const std::shared_ptr<ForwardPass>& self, int step) {
    const auto got = std::make_shared<ParcelPtr>();
    schedule.add([self, got, step] { return self->move_keys(step, *got); },
                 [self, got, step] {
                   const AttentionChunk& keys = self->keys_of(self->tile_.keys_from(step));
                   for (Queries& queries : self->queries_) self->attend(queries, (**got)[0], (**got)[1], keys);
                 });
  }
  static void add_output_stage(Schedule& schedule, const std::shared_ptr<ForwardPass>& self, int step, int after) {
    const auto sent = std::make_shared<ParcelPtr>(), got = std::make_shared<ParcelPtr>();
    schedule.add(
        [self, sent, got, step] {
          const Queries& theirs = self->queries_[static_cast<size_t>(step)];
          *sent = self->parcel(self->output_pieces(theirs.member));
          (**sent)[0].copy_(theirs.lse);
          (**sent)[1].copy_(theirs.output);
          *got = self->parcel(self->output_pieces(self->tile_.me));
          return self->move(" partial outputs", self->tile_.queries_from(step), **sent, self->tile_.queries_to(step),
                            **got);
        },
        [self, got] { self->merge(self->queries_[0], 0, (**got)[1], (**got)[0]); }, after);
  }

  Pieces query_pieces(int step) const {
    return {{{query_rows(tile_.queries_from(step)), all_q_.size(1)}, all_q_.scalar_type()}};
  }
  Pieces output_pieces(int member) const {
    const int64_t rows = query_rows(member);
    return {{{rows, shape_.heads}, work_}, {{rows, all_q_.size(1)}, work_}};
  }

  Pending pack() {
    if (tile_.queries > 1) {
      packed_queries_ = parcel(query_pieces(0));
      q_ = (*packed_queries_)[0];
      tiles::read_rows(all_q_, own_queries(), q_);
    } else {
      q_ = tiles::rows_of(all_q_, own_queries());
    }
    pack_keys();
    return {};
  }
  // New queries meet this rank's own keys.
  void add_queries(int step, const Tensor& q) {
    Queries& fresh = queries_[static_cast<size_t>(step)];
    const auto options = q.options().dtype(work_);
    fresh = {tile_.queries_from(step), q, at::zeros(q.sizes(), options),
             at::full({q.size(0), shape_.heads}, kNothing, options)};
    attend(fresh, k_, v_, own_keys());
  }
  void attend(Queries& queries, const Tensor& k, const Tensor& v, const AttentionChunk& keys) {
    each_visible(queries.member, keys, [&](const std::vector<AttentionRange>& ranges) {
      const VarlenResult part = varlen_attention_forward(queries.q, k, v, ranges, shape_);
      for (const AttentionRange& range : ranges) {
        merge(queries, range.q_begin, part.output.narrow(0, range.q_begin, range.q_rows),
              part.lse.narrow(0, range.q_begin, range.q_rows));
      }
    });
  }
  // Into the rows from q_begin on; each side weighs what its sum of exponentials is of both.
  void merge(Queries& queries, int64_t q_begin, const Tensor& output, const Tensor& lse) const {
    const Tensor sum = queries.lse.narrow(0, q_begin, lse.size(0)), all = at::logaddexp(sum, lse);
    const Tensor none = all == kNothing;
    const auto weight = [&](const Tensor& part) {
      if (fault(Fault::unweighted_merge)) return at::full_like(part, 0.5).unsqueeze(-1);
      return (part - all).exp_().masked_fill_(none, 0).unsqueeze(-1);
    };
    by_head(queries.output.narrow(0, q_begin, lse.size(0)))
        .mul_(weight(sum))
        .add_(by_head(output).to(work_) * weight(lse));
    sum.copy_(all);
  }

  Tensor q_;                      // this rank's chunk
  std::vector<Queries> queries_;  // by step
};

}  // namespace

void tile_attention_forward(Communicator& comm, std::string_view what, const Tensor& q, const Tensor& k,
                            const Tensor& v, const std::vector<AttentionTile>& tiles, const VarlenShape& shape,
                            VarlenResult& result) {
  const c10::NoGradGuard no_grad;
  Schedule schedule;
  for (const AttentionTile& tile : tiles) {
    const auto pass = std::make_shared<ForwardPass>(comm, std::string(what), tile, shape, q, k, v);
    pass->add_to(schedule, pass, result);
  }
  schedule.run();
}

}  // namespace loom
