// Services that mix rows of a segment, wherever its pieces lie: halos and segment sums. Each is a differentiable move
// of rows between ranks followed by ordinary operations, so its gradient is the adjoint move.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/base/upload.h"
#include "core/comm/communicator.h"
#include "core/nn/context.h"
#include "core/nn/moved_rows.h"
#include "core/reshard/rows.h"

namespace loom {
namespace {

Tensor longs(const std::vector<int64_t>& values) { return at::tensor(at::IntArrayRef(values), at::kLong); }

// A row layout of one segment, from its pieces.
Layout pieces_layout(const SplitSegment& segment) {
  std::vector<RowRun> runs;
  for (const SegmentPiece& piece : segment.pieces)
    runs.push_back({piece.rank, piece.begin, piece.local_row, piece.rows});
  return row_layout(segment.rows, runs);
}

// Rows [begin, end) of segment s beyond a local piece, and where they lie once fetched.
struct Fetched {
  int64_t begin = 0, end = 0, at = 0;
};

// The local segment `local` as part of its segment.
struct LocalPart {
  int64_t begin = 0;  // first row within the segment
  int64_t rows = 0;   // of the whole segment
  std::vector<Fetched> fetched;
};

}  // namespace

Tensor UnitContext::moved(const char* service, const Route& route, const Tensor& source, int64_t rows) {
  const bool reuses = state_.kept != nullptr && state_.recomputing;
  Tensor values;
  if (reuses) {
    values = next(state_.kept->moved, next_kept_moved_);
  } else {
    values = redistribute_rows(*state_.comm, what(service), route, source, rows);
    if (state_.kept != nullptr) state_.kept->moved.push_back(values);
  }
  return moved_rows(*state_.comm, what(service) + " gradient", route, Way::along, values, source);
}

Tensor UnitContext::halo(const Tensor& x, int64_t before, int64_t after, int64_t stride, std::string_view partition) {
  need(Mixes::halo, "halo");
  const Segments& s = segments(partition);
  if (x.dim() != 2 || x.size(0) != s.rows() || before < 0 || after < 0 || stride < 1) {
    throw PluginError(concat("halo: a tensor of shape ", x.sizes(), ", ", before, " rows before, ", after,
                             " after, stride ", stride, "; expected [", s.rows(), ", width] and no negative numbers"));
  }
  std::vector<LocalPart> parts(static_cast<size_t>(s.count()));
  for (int64_t i = 0; i < s.count(); ++i) parts[static_cast<size_t>(i)].rows = s.length(i);
  Route route;
  int64_t fetched = 0;
  for (const SplitSegment& split : s.splits) {
    if (split.pieces.size() < 2) continue;
    Layout wanted{{split.rows}, {}};
    const int64_t first = fetched;
    for (const SegmentPiece& piece : split.pieces) {
      const std::pair<int64_t, int64_t> sides[] = {
          {std::max<int64_t>(0, piece.begin - before), piece.begin},
          {piece.begin + piece.rows, std::min(split.rows, piece.begin + piece.rows + after)}};
      const bool mine = piece.rank == rank();
      if (mine) {
        LocalPart& part = parts.at(static_cast<size_t>(piece.local));
        part.begin = piece.begin;
        part.rows = split.rows;
      }
      for (const auto& [begin, end] : sides) {
        if (begin >= end) continue;
        wanted.boxes.push_back({piece.rank, {{begin}, {end - begin}}, mine ? fetched - first : 0, {1}});
        if (!mine) continue;
        parts[static_cast<size_t>(piece.local)].fetched.push_back({begin, end, fetched});
        fetched += end - begin;
      }
    }
    append(route, route_of(plan_transfers(pieces_layout(split), wanted), rank()), 0, first);
  }
  std::vector<Tensor> rows{x};
  if (fetched > 0 || route.remote()) {
    Tensor neighbours = moved("halo", route, x, fetched);
    if (fault(Fault::halo_without_neighbour)) neighbours = neighbours * 0;
    if (state_.counters != nullptr && !state_.recomputing) state_.counters->halo_rows += fetched;
    rows.push_back(neighbours);
  }
  rows.push_back(at::zeros({1, x.size(1)}, x.options()));
  const int64_t zero_row = s.rows() + fetched, taps = before + 1 + after;
  std::vector<int64_t> index;
  for (int64_t i = 0; i < s.count(); ++i) {
    const LocalPart& part = parts[static_cast<size_t>(i)];
    for (int64_t row = part.begin; row < part.begin + s.length(i); ++row) {
      if (row % stride != 0) continue;
      for (int64_t at = row - before; at <= row + after; ++at) {
        if (at >= part.begin && at < part.begin + s.length(i)) {
          index.push_back(s.offsets[i] + at - part.begin);
          continue;
        }
        int64_t found = zero_row;
        for (const Fetched& f : part.fetched) {
          if (at >= f.begin && at < f.end) found = s.rows() + f.at + at - f.begin;
        }
        index.push_back(found);
      }
    }
  }
  return at::cat(rows).index_select(0, upload(longs(index), x.device())).view({-1, taps, x.size(1)});
}

Tensor UnitContext::segment_ids(const Tensor& x, std::string_view partition, const char* service) const {
  const Segments& s = segments(partition);
  if (x.dim() != 2 || x.size(0) != s.rows()) {
    throw PluginError(concat(service, ": the tensor has shape ", x.sizes(), ", partition '", partition, "' has ",
                             s.rows(), " rows; expected [rows, width]"));
  }
  Tensor ids = at::empty({s.rows()}, at::kLong);
  int64_t* out = ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < s.count(); ++i) std::fill(out + s.offsets[i], out + s.offsets[i + 1], i);
  return upload(ids, x.device());
}

// Sums of whole segments, one row per local segment. Pieces' sums go to every rank that has a piece and are added in
// the order of pieces, so all get the same bits.
Tensor UnitContext::total(const Tensor& x, std::string_view partition, const char* service) {
  need(Mixes::attention, service);
  const Segments& s = segments(partition);
  const Tensor local =
      at::zeros({s.count(), x.size(1)}, x.options()).index_add(0, segment_ids(x, partition, service), x);
  Route route;
  std::vector<int64_t> owner, source(static_cast<size_t>(s.count()));
  for (int64_t i = 0; i < s.count(); ++i) source[static_cast<size_t>(i)] = i;
  int64_t gathered = 0, jobs = 0;
  bool shared = false;
  for (const SplitSegment& split : s.splits) {
    const auto n = static_cast<int64_t>(split.pieces.size());
    if (n < 2) continue;
    shared = true;
    std::vector<RowRun> from;
    Layout to{{n}, {}};
    std::set<int> ranks;
    bool mine = false;
    for (int64_t p = 0; p < n; ++p) {
      const SegmentPiece& piece = split.pieces[static_cast<size_t>(p)];
      from.push_back({piece.rank, p, piece.local, 1});
      if (ranks.insert(piece.rank).second) to.boxes.push_back({piece.rank, {{0}, {n}}, 0, {1}});
      if (piece.rank != rank()) continue;
      mine = true;
      source[static_cast<size_t>(piece.local)] = s.count() + jobs;
    }
    append(route, route_of(plan_transfers(row_layout(n, from), to), rank()), 0, gathered);
    if (!mine) continue;
    owner.insert(owner.end(), static_cast<size_t>(n), jobs++);
    gathered += n;
  }
  if (!shared) return local;
  if (state_.counters != nullptr && !state_.recomputing) state_.counters->split_sums += jobs;
  const Tensor pieces = moved(service, route, local, gathered);
  const Tensor sums = at::zeros({jobs, x.size(1)}, x.options()).index_add(0, upload(longs(owner), x.device()), pieces);
  if (fault(Fault::mean_of_pieces)) return local;
  return at::cat({local, sums}).index_select(0, upload(longs(source), x.device()));
}

Tensor UnitContext::placed_into(const Tensor& totals, std::string_view partition, std::string_view into) const {
  const Segments& from = segments(partition);
  const Segments& to = segments(into);
  std::map<int64_t, int64_t> local;
  for (int64_t i = 0; i < from.count(); ++i) local.emplace(from.ids[static_cast<size_t>(i)], i);
  std::vector<int64_t> index;
  for (int64_t i = 0; i < to.count(); ++i) {
    if (to.length(i) == 0) continue;
    const auto found = local.find(to.ids[static_cast<size_t>(i)]);
    if (to.length(i) != 1 || found == local.end()) {
      throw PluginError(concat("segment sums of partition '", partition, "' into '", into,
                               "': expected one row per segment, on a rank that has rows of it"));
    }
    index.push_back(found->second);
  }
  return totals.index_select(0, upload(longs(index), totals.device()));
}

Tensor UnitContext::segment_sum(const Tensor& x, std::string_view partition) {
  return total(x, partition, "segment_sum");
}

Tensor UnitContext::segment_mean(const Tensor& x, std::string_view partition) {
  const Segments& s = segments(partition);
  const Tensor sums = total(x, partition, "segment_mean");
  const Tensor lengths = at::empty({s.count(), 1}, at::kDouble);
  double* out = lengths.data_ptr<double>();
  for (int64_t i = 0; i < s.count(); ++i) out[i] = static_cast<double>(std::max<int64_t>(s.length(i), 1));
  for (const SplitSegment& split : s.splits) {
    if (fault(Fault::mean_of_pieces)) break;
    for (const SegmentPiece& piece : split.pieces) {
      if (piece.rank == rank()) out[piece.local] = static_cast<double>(split.rows);
    }
  }
  return sums / upload(lengths, x.device()).to(x.scalar_type());
}

Tensor UnitContext::segment_sum(const Tensor& x, std::string_view partition, std::string_view into) {
  return placed_into(segment_sum(x, partition), partition, into);
}

Tensor UnitContext::segment_mean(const Tensor& x, std::string_view partition, std::string_view into) {
  return placed_into(segment_mean(x, partition), partition, into);
}

}  // namespace loom
