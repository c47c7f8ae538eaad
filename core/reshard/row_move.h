#pragma once
// Rows of a stream from where one component has them to where the next one wants them: the bridge between encoders,
// connectors and the backbone (MegaScale-Omni, arXiv 2605.08962). Two ways lead there, with equal results to the bit:
// exact, by messages of what differs from rank to rank; symmetric, by a reduce-scatter of equal parts over a group of
// neighbouring ranks, each rank adding what it has to nothing, so that no link carries more than another and sizes do
// not depend on the data. The adjoint of the second is an all-gather.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "core/mesh/rank_group.h"
#include "core/reshard/redistribute.h"

namespace loom {

// One rank's view.
struct RowMove {
  bool identity = true;  // equal rows in equal order on every rank
  Route route;           // exact: this rank's rows to those of others; symmetric: to its places in the group's parts
  int64_t rows = 0;      // of the result, on this rank; read unless identity
  std::optional<RankGroup> group{};  // set = symmetric
  int64_t part = 0;                  // rows of each rank's part
};

// What both ways would send, of `rows` global rows that lie as `source` says and go where `destination` says.
struct RowTraffic {
  int64_t busiest = 0;  // rows that the busiest rank sends or receives on the exact path
  int group = 1;        // ranks of the smallest groups of neighbours that no row leaves
  int64_t part = 0;     // most rows that arrive on one rank, those that were there included
  int64_t symmetric() const { return (group - 1) * part; }  // rows that every rank sends on the symmetric path
};
RowTraffic row_traffic(const std::vector<Transfer>& transfers, const std::vector<RowRun>& destination, int world);

RowMove exact_move(const std::vector<Transfer>& transfers, int64_t result_rows, int rank);
RowMove symmetric_move(const std::vector<Transfer>& transfers, const RowTraffic& traffic, int64_t result_rows,
                       int world, int rank);

// From what share of the symmetric path's bytes on the busiest rank of the exact path takes as long as the symmetric
// one: messages of 1 MB to every rank, measured on all ranks at once; equal numbers on every rank. Takes a moment. At
// most 100; 1 in a world of one.
double symmetric_threshold(Communicator& comm, c10::ScalarType type, c10::Device device);

// Rows on their way; the move must outlive it.
class MovingRows {
 public:
  // Starts: rows [source rows, width] -> [move.rows, width]. No autograd.
  MovingRows(Communicator& comm, std::string_view what, const RowMove& move, const Tensor& rows);
  // The adjoint: gradient of the result -> gradient of the rows, of which there were `source_rows`.
  static MovingRows back(Communicator& comm, std::string_view what, const RowMove& move, const Tensor& gradient,
                         int64_t source_rows);
  Tensor take();  // waits

 private:
  MovingRows() = default;

  Tensor result_, buffer_;
  std::optional<Redistribution> exact_;
  Pending pending_;
  const RowMove* gathered_ = nullptr;  // symmetric, back: its rows are to be picked from buffer_
  Communicator* comm_ = nullptr;
};

}  // namespace loom
