#include "core/reshard/row_move.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "core/base/error.h"

namespace loom {
namespace {

// x + -0.0 is x to the bit, 0.0 and -0.0 included.
constexpr double kNothing = -0.0;

}  // namespace

RowTraffic row_traffic(const std::vector<Transfer>& transfers, const std::vector<RowRun>& destination, int world) {
  std::vector<int64_t> sent(static_cast<size_t>(world)), received = sent, held = sent;
  for (const Transfer& transfer : transfers) {
    if (transfer.source == transfer.destination) continue;
    sent[static_cast<size_t>(transfer.source)] += transfer.from.numel();
    received[static_cast<size_t>(transfer.destination)] += transfer.to.numel();
  }
  const auto crossed = [&](int size) {
    return std::any_of(transfers.begin(), transfers.end(),
                       [&](const Transfer& t) { return t.source / size != t.destination / size; });
  };
  int group = 1;
  while (world % group != 0 || crossed(group)) ++group;
  for (const RowRun& run : destination) held[static_cast<size_t>(run.rank)] += run.rows;
  const auto most = [](const std::vector<int64_t>& of) { return *std::max_element(of.begin(), of.end()); };
  return {std::max(most(sent), most(received)), group, most(held)};
}

RowMove exact_move(const std::vector<Transfer>& transfers, int64_t result_rows, int rank) {
  RowMove out;
  out.identity = false;
  out.rows = result_rows;
  out.route = route_of(transfers, rank);
  return out;
}

RowMove symmetric_move(const std::vector<Transfer>& transfers, const RowTraffic& traffic, int64_t result_rows,
                       int world, int rank) {
  RowMove out;
  out.identity = false;
  out.rows = result_rows;
  out.group = block_group(rank, world, traffic.group);
  out.part = traffic.part;
  for (const Transfer& transfer : transfers) {
    if (transfer.source != rank) continue;
    Patch to = transfer.to;
    to.offset += transfer.destination % traffic.group * traffic.part;
    out.route.local.emplace_back(transfer.from, to);
  }
  return out;
}

MovingRows::MovingRows(Communicator& comm, std::string_view what, const RowMove& move, const Tensor& rows) {
  const c10::NoGradGuard no_grad;
  const int64_t width = rows.size(1);
  const Tensor source = rows.detach().contiguous();
  if (move.identity) {
    result_ = rows;
  } else if (!move.group.has_value()) {
    result_ = at::zeros({move.rows, width}, rows.options());
    buffer_ = source;
    exact_.emplace(comm, what, std::vector<Move>{{&move.route, source, result_, width}});
  } else {
    const auto ranks = static_cast<int64_t>(move.group->size());
    buffer_ = at::full({ranks * move.part, width}, kNothing, rows.options());
    redistribute(comm, what, {{&move.route, source, buffer_, width}});
    const Tensor part = at::full({move.part, width}, kNothing, rows.options());
    pending_ = comm.reduce_scatter_add(what, *move.group, buffer_.view({-1}), part.view({-1}));
    result_ = part.narrow(0, 0, move.rows);
  }
}

MovingRows MovingRows::back(Communicator& comm, std::string_view what, const RowMove& move, const Tensor& gradient,
                            int64_t source_rows) {
  const c10::NoGradGuard no_grad;
  MovingRows out;
  const int64_t width = gradient.size(1);
  if (move.identity) {
    out.result_ = gradient;
    return out;
  }
  out.result_ = at::zeros({source_rows, width}, gradient.options());
  if (!move.group.has_value()) {
    out.buffer_ = gradient.contiguous();
    out.exact_.emplace(comm, what, std::vector<Move>{{&move.route, out.result_, out.buffer_, width}},
                       Direction::adjoint);
    return out;
  }
  const auto ranks = static_cast<int64_t>(move.group->size());
  out.buffer_ = at::zeros({ranks * move.part, width}, gradient.options());
  const int64_t place = index_in(*move.group, comm.rank());
  const Tensor mine = out.buffer_.narrow(0, place * move.part, move.part);
  mine.narrow(0, 0, move.rows).copy_(gradient);
  out.pending_ = comm.all_gather(what, *move.group, mine.view({-1}), out.buffer_.view({-1}));
  out.gathered_ = &move;
  out.comm_ = &comm;
  return out;
}

Tensor MovingRows::take() {
  if (exact_.has_value()) exact_->finish();
  exact_.reset();
  pending_.wait();
  if (gathered_ != nullptr)
    redistribute_adjoint(*comm_, "bridge", {{&gathered_->route, result_, buffer_, result_.size(1)}});
  gathered_ = nullptr;
  buffer_ = Tensor();
  return std::move(result_);
}

}  // namespace loom
