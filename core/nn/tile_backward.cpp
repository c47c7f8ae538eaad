// As the forward, with the output's gradient beside the queries. Gradients of keys go home while the next keys are
// worked on, those of queries at the end.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>

#include "core/nn/tile_attention.h"
#include "core/nn/tile_pass.h"

namespace loom {
namespace {

using tiles::Parcel;
using tiles::ParcelPtr;
using tiles::Pieces;
using tiles::Schedule;

class BackwardPass : tiles::TilePass {
 public:
  BackwardPass(Communicator& comm, std::string what, const AttentionTile& tile, const VarlenShape& shape,
               const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const VarlenResult& result)
      : TilePass(comm, std::move(what), tile, shape, q, k, v), all_grad_(grad), all_result_(result) {}

  // `self` is this, and lives as long as its stages.
  void add_to(Schedule& schedule, const std::shared_ptr<BackwardPass>& self, VarlenGradients& into) {
    queries_.resize(static_cast<size_t>(tile_.queries));
    schedule.add([self] { return self->pack(); }, [self] { self->begin(); });
    for (int step = 1; step < tile_.queries; ++step) add_query_stage(schedule, self, step);
    int before = -1;
    for (int step = 1; step < tile_.keys(); ++step) {
      const int worked = add_key_stage(schedule, self, step);
      if (step > 1) add_home_stage(schedule, self, step - 1, before);
      before = worked;
    }
    if (tile_.keys() > 1) add_home_stage(schedule, self, tile_.keys() - 1, before);
    const int worked = schedule.add([self] { self->forget_packed(); });
    for (int step = 1; step < tile_.queries; ++step) add_query_gradient_stage(schedule, self, step, worked);
    schedule.add([self, &into] {
      tiles::write_rows(into.dq, self->own_queries(), self->queries_[0].dq);
      tiles::add_rows(into.dk, self->own_keys(), self->dk_);
      tiles::add_rows(into.dv, self->own_keys(), self->dv_);
    });
  }

 private:
  struct Queries {
    int member = 0;
    Tensor q, grad, dq;  // dq in working precision
    VarlenResult result;
  };
  struct KeySums {
    ParcelPtr keys, sums, home;
  };

  static void add_query_stage(Schedule& schedule, const std::shared_ptr<BackwardPass>& self, int step) {
    const auto got = std::make_shared<ParcelPtr>();
    schedule.add(
        [self, got, step] {
          return self->move_queries(" queries and output gradients", step, self->query_pieces(step), *got);
        },
        [self, got, step] { self->add_remote(step, **got); });
  }
  static int add_key_stage(Schedule& schedule, const std::shared_ptr<BackwardPass>& self, int step) {
    return schedule.add([self, step] { return self->move_keys(step, self->keys_[step].keys); },
                        [self, step] { self->attend_to(self->tile_.keys_from(step), self->keys_[step]); });
  }
  static void add_home_stage(Schedule& schedule, const std::shared_ptr<BackwardPass>& self, int step, int after) {
    schedule.add(
        [self, step] {
          KeySums& sums = self->keys_[step];
          sums.home = self->keys_parcel(self->tile_.me);
          return self->move(" key and value gradients", self->tile_.keys_from(step), *sums.sums,
                            self->tile_.keys_to(step), *sums.home);
        },
        [self, step] {
          self->dk_.add_((*self->keys_[step].home)[0]);
          self->dv_.add_((*self->keys_[step].home)[1]);
          self->keys_.erase(step);
        },
        after);
  }
  static void add_query_gradient_stage(Schedule& schedule, const std::shared_ptr<BackwardPass>& self, int step,
                                       int after) {
    const auto sent = std::make_shared<ParcelPtr>(), got = std::make_shared<ParcelPtr>();
    schedule.add(
        [self, sent, got, step] {
          const Queries& theirs = self->queries_[static_cast<size_t>(step)];
          *sent = self->parcel(self->gradient_pieces(theirs.member));
          (**sent)[0].copy_(theirs.dq);
          *got = self->parcel(self->gradient_pieces(self->tile_.me));
          return self->move(" query gradients", self->tile_.queries_from(step), **sent, self->tile_.queries_to(step),
                            **got);
        },
        [self, got] { self->queries_[0].dq.add_((**got)[0]); }, after);
  }

  Pieces query_pieces(int step) const {
    const int64_t rows = query_rows(tile_.queries_from(step));
    const std::vector<int64_t> wide{rows, all_q_.size(1)}, narrow{rows, shape_.heads};
    return {{narrow, work_}, {narrow, work_}, {wide, all_q_.scalar_type()}, {wide, all_q_.scalar_type()}};
  }
  Pieces gradient_pieces(int member) const { return {{{query_rows(member), all_q_.size(1)}, all_q_.scalar_type()}}; }

  Pending pack() {
    Queries& mine = queries_[0];
    mine = {tile_.me,
            tiles::rows_of(all_q_, own_queries()),
            tiles::rows_of(all_grad_, own_queries()),
            {},
            {tiles::rows_of(all_result_.output, own_queries()), tiles::rows_of(all_result_.lse, own_queries())}};
    if (tile_.queries > 1) {
      packed_queries_ = parcel(query_pieces(0));
      (*packed_queries_)[0].copy_(mine.result.lse);
      (*packed_queries_)[1].copy_((by_head(mine.grad).to(work_) * by_head(mine.result.output).to(work_)).sum(-1));
      (*packed_queries_)[2].copy_(mine.q);
      (*packed_queries_)[3].copy_(mine.grad);
    }
    pack_keys();
    return {};
  }
  void begin() {
    dk_ = at::zeros(k_.sizes(), k_.options().dtype(work_));
    dv_ = at::zeros_like(dk_);
    add_queries(0, std::move(queries_[0]));
  }
  // The backward of attention reads the output for its product with the gradient alone; any output with that product,
  // delta, gives the same. So delta travels in place of the output.
  void add_remote(int step, const Parcel& got) {
    const Tensor grad = by_head(got[3]).to(work_), square = (grad * grad).sum(-1);
    const Tensor factor = at::where(square > 0, got[1] / square, at::zeros_like(square));
    const Tensor output = (grad * factor.unsqueeze(-1)).view(got[3].sizes()).to(got[3].scalar_type());
    add_queries(step, {tile_.queries_from(step), got[2], got[3], {}, {output, got[0]}});
  }
  // New queries meet this rank's own keys.
  void add_queries(int step, Queries fresh) {
    fresh.dq = at::zeros(fresh.q.sizes(), fresh.q.options().dtype(work_));
    Queries& queries = queries_[static_cast<size_t>(step)] = std::move(fresh);
    attend(queries, k_, v_, own_keys(), dk_, dv_);
  }
  void attend_to(int member, KeySums& of) {
    const Tensor k = (*of.keys)[0], v = (*of.keys)[1];
    const Tensor dk = at::zeros(k.sizes(), k.options().dtype(work_)), dv = at::zeros_like(dk);
    for (Queries& queries : queries_) attend(queries, k, v, keys_of(member), dk, dv);
    of.sums = keys_parcel(member);
    (*of.sums)[0].copy_(dk);
    (*of.sums)[1].copy_(dv);
    of.keys = nullptr;
  }
  void attend(Queries& queries, const Tensor& k, const Tensor& v, const AttentionChunk& keys, const Tensor& dk,
              const Tensor& dv) {
    each_visible(queries.member, keys, [&](const std::vector<AttentionRange>& ranges) {
      const VarlenGradients part =
          varlen_attention_backward(queries.grad, queries.q, k, v, queries.result, ranges, shape_);
      queries.dq.add_(part.dq);
      dk.add_(part.dk);
      dv.add_(part.dv);
    });
  }

  Tensor all_grad_;  // all rows of this rank
  const VarlenResult& all_result_;
  Tensor dk_, dv_;                // of its keys, in working precision
  std::vector<Queries> queries_;  // by step
  std::map<int, KeySums> keys_;   // by step
};

}  // namespace

void tile_attention_backward(Communicator& comm, std::string_view what, const Tensor& grad_output, const Tensor& q,
                             const Tensor& k, const Tensor& v, const std::vector<AttentionTile>& tiles,
                             const VarlenShape& shape, const VarlenResult& result, VarlenGradients& into) {
  const c10::NoGradGuard no_grad;
  Schedule schedule;
  for (const AttentionTile& tile : tiles) {
    const auto pass =
        std::make_shared<BackwardPass>(comm, std::string(what), tile, shape, grad_output, q, k, v, result);
    pass->add_to(schedule, pass, into);
  }
  schedule.run();
}

}  // namespace loom
