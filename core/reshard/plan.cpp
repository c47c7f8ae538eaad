// Source boxes ∩ destination boxes, by a sweep over dimension 0: an index finds the source boxes that meet the rows of
// a destination box, and between two neighbouring cuts of those rows the set of candidates is constant. So a list of n
// runs of one row (a permuted item) costs n log n, and several owners of an element are a matter of order, not of time.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/reshard/redistribute.h"

namespace loom {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t d = 0; d < shape.size(); ++d) out += (d > 0 ? ", " : "") + std::to_string(shape[d]);
  return out + "]";
}

void check(const Layout& layout, const char* which) {
  const size_t dims = layout.shape.size();
  for (const OwnedBox& owned : layout.boxes) {
    const Box& box = owned.box;
    LOOM_CHECK(box.size.size() == dims && box.offset.size() == dims && owned.stride.size() == dims, which, " box ",
               box.str(), " of rank ", owned.rank, " with ", owned.stride.size(), " strides in a tensor of shape ",
               shape_text(layout.shape));
    LOOM_CHECK(owned.rank >= 0 && owned.offset >= 0, which, " box ", box.str(), " of rank ", owned.rank,
               " lies at offset ", owned.offset);
    for (size_t d = 0; d < dims; ++d) {
      LOOM_CHECK(box.offset[d] >= 0 && box.size[d] >= 0 && box.offset[d] + box.size[d] <= layout.shape[d], which,
                 " box ", box.str(), " of rank ", owned.rank, " reaches beyond ", shape_text(layout.shape));
      LOOM_CHECK(owned.stride[d] >= (box.size[d] > 1 ? 1 : 0), which, " box ", box.str(), " of rank ", owned.rank,
                 " has stride ", owned.stride[d], " in dimension ", d);
    }
  }
}

int64_t begin_of(const Box& box) { return box.offset[0]; }
int64_t end_of(const Box& box) { return box.offset[0] + box.size[0]; }

// Boxes in the order of where they begin, under a tree of where they end.
class RowIndex {
 public:
  explicit RowIndex(const std::vector<OwnedBox>& boxes) : boxes_(boxes) {
    for (size_t i = 0; i < boxes.size(); ++i) {
      if (!boxes[i].box.empty()) order_.push_back(i);
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return begin_of(boxes[a].box) < begin_of(boxes[b].box); });
    while (leaves_ < order_.size()) leaves_ *= 2;
    latest_.assign(2 * leaves_, std::numeric_limits<int64_t>::min());
    for (size_t i = 0; i < order_.size(); ++i) latest_[leaves_ + i] = end_of(boxes[order_[i]].box);
    for (size_t i = leaves_ - 1; i > 0; --i) latest_[i] = std::max(latest_[2 * i], latest_[2 * i + 1]);
  }

  // The boxes that meet rows [begin, end), in the order of where they begin.
  void find(int64_t begin, int64_t end, std::vector<size_t>& out) const {
    out.clear();
    const auto stop =
        std::partition_point(order_.begin(), order_.end(), [&](size_t i) { return begin_of(boxes_[i].box) < end; });
    visit(1, 0, leaves_, static_cast<size_t>(stop - order_.begin()), begin, out);
  }

 private:
  void visit(size_t node, size_t first, size_t count, size_t stop, int64_t begin, std::vector<size_t>& out) const {
    if (first >= stop || latest_[node] <= begin) return;
    if (count == 1) {
      out.push_back(order_[first]);
      return;
    }
    visit(2 * node, first, count / 2, stop, begin, out);
    visit(2 * node + 1, first + count / 2, count / 2, stop, begin, out);
  }

  const std::vector<OwnedBox>& boxes_;
  std::vector<size_t> order_;
  size_t leaves_ = 1;
  std::vector<int64_t> latest_;
};

Patch patch_of(const OwnedBox& owned, const Box& part) {
  Patch out{owned.offset, part.size, owned.stride};
  for (size_t d = 0; d < part.size.size(); ++d) out.offset += (part.offset[d] - owned.box.offset[d]) * owned.stride[d];
  return out;
}

bool continues(const Patch& a, const Patch& b, size_t dim) {
  return a.stride == b.stride && b.offset == a.offset + a.size[dim] * a.stride[dim];
}

// Makes `next` a part of `last` when it lies behind it in one dimension on both sides.
bool extend(Transfer& last, const Transfer& next) {
  if (last.source != next.source || last.destination != next.destination) return false;
  std::vector<int64_t>& size = last.from.size;
  size_t differing = 0, count = 0;
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] != next.from.size[d]) differing = d, ++count;
  }
  if (count > 1) return false;
  for (size_t d = count == 1 ? differing : 0; d < (count == 1 ? differing + 1 : size.size()); ++d) {
    if (!continues(last.from, next.from, d) || !continues(last.to, next.to, d)) continue;
    last.from.size[d] += next.from.size[d];
    last.to.size[d] = last.from.size[d];
    return true;
  }
  return false;
}

// `whole` without `hole`, which lies inside it.
void subtract(Box whole, const Box& hole, std::vector<Box>& out) {
  for (size_t d = 0; d < whole.size.size(); ++d) {
    const int64_t end = whole.offset[d] + whole.size[d], hole_end = hole.offset[d] + hole.size[d];
    if (whole.offset[d] < hole.offset[d]) {
      out.push_back(whole);
      out.back().size[d] = hole.offset[d] - whole.offset[d];
    }
    if (hole_end < end) {
      out.push_back(whole);
      out.back().offset[d] = hole_end;
      out.back().size[d] = end - hole_end;
    }
    whole.offset[d] = hole.offset[d];
    whole.size[d] = hole.size[d];
  }
}

class Planner {
 public:
  explicit Planner(const Layout& source) : source_(source), index_(source.boxes) {}

  void want(const OwnedBox& wanted) {
    if (wanted.box.empty()) return;
    index_.find(begin_of(wanted.box), end_of(wanted.box), found_);
    cuts_.assign({begin_of(wanted.box), end_of(wanted.box)});
    for (const size_t i : found_) {
      const Box& box = source_.boxes[i].box;
      if (begin_of(box) > cuts_[0]) cuts_.push_back(begin_of(box));
      if (end_of(box) < cuts_[1]) cuts_.push_back(end_of(box));
    }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());

    std::set<std::pair<bool, size_t>> active;  // what lies on the wanting rank comes first, then the order of the list
    size_t next = 0;
    for (size_t cut = 0; cut + 1 < cuts_.size(); ++cut) {
      for (; next < found_.size() && begin_of(source_.boxes[found_[next]].box) <= cuts_[cut]; ++next) {
        active.emplace(source_.boxes[found_[next]].rank != wanted.rank, found_[next]);
      }
      Box slab = wanted.box;
      slab.offset[0] = cuts_[cut];
      slab.size[0] = cuts_[cut + 1] - cuts_[cut];
      std::vector<size_t> touched;
      std::vector<Box> missing{slab};
      for (auto candidate = active.begin(); candidate != active.end() && !missing.empty();) {
        const OwnedBox& owned = source_.boxes[candidate->second];
        if (end_of(owned.box) <= cuts_[cut]) {
          candidate = active.erase(candidate);
          continue;
        }
        ++candidate;
        std::vector<Box> rest;
        for (const Box& part : missing) {
          const Box common = intersect(part, owned.box);
          if (common.empty()) {
            rest.push_back(part);
          } else {
            subtract(part, common, rest);
            emit({owned.rank, wanted.rank, patch_of(owned, common), patch_of(wanted, common)}, touched);
          }
        }
        missing = std::move(rest);
      }
      if (!missing.empty()) {
        throw InternalError(concat("no rank owns ", missing.front().str(), " of a tensor of shape ",
                                   shape_text(source_.shape), ", which rank ", wanted.rank, " needs for its box ",
                                   wanted.box.str()));
      }
      open_ = std::move(touched);
    }
  }

  std::vector<Transfer> take() { return std::move(transfers_); }

 private:
  // Extends a transfer of the rows before, if this one is its continuation.
  void emit(Transfer transfer, std::vector<size_t>& touched) {
    for (const size_t i : open_) {
      if (extend(transfers_[i], transfer)) {
        touched.push_back(i);
        return;
      }
    }
    touched.push_back(transfers_.size());
    transfers_.push_back(std::move(transfer));
  }

  const Layout& source_;
  RowIndex index_;
  std::vector<Transfer> transfers_;
  std::vector<size_t> open_;  // transfers that end with the rows before
  std::vector<size_t> found_;
  std::vector<int64_t> cuts_;
};

// A scalar as a tensor of one row.
Layout with_rows(Layout layout) {
  layout.shape = {1};
  for (OwnedBox& owned : layout.boxes) owned.box = whole_box({1}), owned.stride = {1};
  return layout;
}

PeerPatches& at_peer(std::vector<PeerPatches>& peers, int peer) {
  const auto place =
      std::partition_point(peers.begin(), peers.end(), [&](const PeerPatches& p) { return p.peer < peer; });
  if (place != peers.end() && place->peer == peer) return *place;
  return *peers.insert(place, PeerPatches{peer, {}});
}

void append_peers(std::vector<PeerPatches>& peers, const std::vector<PeerPatches>& more, int64_t offset) {
  for (const PeerPatches& other : more) {
    std::vector<Patch>& patches = at_peer(peers, other.peer).patches;
    patches.insert(patches.end(), other.patches.begin(), other.patches.end());
    for (size_t i = patches.size() - other.patches.size(); i < patches.size(); ++i) patches[i].offset += offset;
  }
}

}  // namespace

int64_t Patch::numel() const {
  int64_t n = 1;
  for (const int64_t extent : size) n *= extent;
  return n;
}

int64_t PeerPatches::numel() const {
  int64_t n = 0;
  for (const Patch& patch : patches) n += patch.numel();
  return n;
}

int64_t Route::sent() const {
  int64_t n = 0;
  for (const PeerPatches& peer : sends) n += peer.numel();
  return n;
}

std::vector<Transfer> plan_transfers(const Layout& source, const Layout& destination) {
  LOOM_CHECK(source.shape == destination.shape, "from a tensor of shape ", shape_text(source.shape),
             " to one of shape ", shape_text(destination.shape));
  check(source, "source");
  check(destination, "destination");
  if (source.shape.empty()) return plan_transfers(with_rows(source), with_rows(destination));
  Planner planner(source);
  for (const OwnedBox& wanted : destination.boxes) planner.want(wanted);
  return planner.take();
}

Route route_of(const std::vector<Transfer>& transfers, int rank) {
  Route out;
  for (const Transfer& transfer : transfers) {
    if (transfer.source == rank && transfer.destination == rank) {
      out.local.emplace_back(transfer.from, transfer.to);
    } else if (transfer.source == rank) {
      at_peer(out.sends, transfer.destination).patches.push_back(transfer.from);
    } else if (transfer.destination == rank) {
      at_peer(out.receives, transfer.source).patches.push_back(transfer.to);
    }
  }
  return out;
}

void append(Route& route, const Route& more, int64_t source_offset, int64_t destination_offset) {
  for (std::pair<Patch, Patch> pair : more.local) {
    pair.first.offset += source_offset;
    pair.second.offset += destination_offset;
    route.local.push_back(std::move(pair));
  }
  append_peers(route.sends, more.sends, source_offset);
  append_peers(route.receives, more.receives, destination_offset);
}

Layout row_layout(int64_t rows, const std::vector<RowRun>& runs) {
  Layout out{{rows}, {}};
  for (const RowRun& run : runs) {
    if (run.rows > 0) out.boxes.push_back({run.rank, {{run.global}, {run.rows}}, run.local, {1}});
  }
  return out;
}

}  // namespace loom
