#include "core/nn/attention_tiles.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/faults.h"

namespace loom {
namespace {

int turned(int at, int by, int size) { return ((at + by) % size + size) % size; }

void add_pieces(const SplitSegment& segment, const std::vector<int>& ranks, std::vector<AttentionChunk>& chunks) {
  for (const SegmentPiece& piece : segment.pieces) {
    const auto member = std::lower_bound(ranks.begin(), ranks.end(), piece.rank) - ranks.begin();
    if (piece.rows > 0) chunks[static_cast<size_t>(member)].runs.push_back({piece.begin, piece.rows, piece.local_row});
  }
}

}  // namespace

int64_t AttentionChunk::rows() const {
  int64_t out = 0;
  for (const Run& run : runs) out += run.rows;
  return out;
}

int AttentionTile::queries_from(int step) const { return me / queries * queries + turned(me % queries, step, queries); }
int AttentionTile::queries_to(int step) const { return queries_from(-step); }
int AttentionTile::keys_from(int step) const { return turned(me / queries, step, keys()) * queries + me % queries; }
int AttentionTile::keys_to(int step) const { return keys_from(-step); }

int best_divisor(int members, const std::function<double(int)>& cost, double worthwhile) {
  int best = 1;
  double least = cost(1);
  for (int a = 2; a <= members; ++a) {
    if (members % a != 0) continue;
    const double own = cost(a);
    if (own >= worthwhile * least) continue;
    best = a;
    least = own;
  }
  return best;
}

int least_traffic(int members, double kv_share) {
  return best_divisor(members, [&](int a) { return 5.0 * (a - 1) + 6.0 * kv_share * (members / a - 1); });
}

AttentionTile plan_tile(const SplitSegment& q, const SplitSegment* k, int rank, int queries, double kv_share) {
  LOOM_CHECK(queries > 0 || queries == kLeastTraffic, "a tile of ", queries, " chunks of queries");
  AttentionTile out;
  out.q_rows = q.rows;
  out.k_rows = k == nullptr ? 0 : k->rows;
  for (const SplitSegment* segment : {&q, k}) {
    if (segment == nullptr) continue;
    for (const SegmentPiece& piece : segment->pieces) out.ranks.push_back(piece.rank);
  }
  std::sort(out.ranks.begin(), out.ranks.end());
  out.ranks.erase(std::unique(out.ranks.begin(), out.ranks.end()), out.ranks.end());
  out.q.resize(out.ranks.size());
  out.kv.resize(out.ranks.size());
  add_pieces(q, out.ranks, out.q);
  if (k != nullptr) add_pieces(*k, out.ranks, out.kv);
  const int members = static_cast<int>(out.ranks.size());
  out.queries = queries == kLeastTraffic ? least_traffic(members, kv_share) : std::gcd(queries, members);
  const auto mine = std::lower_bound(out.ranks.begin(), out.ranks.end(), rank);
  if (mine != out.ranks.end() && *mine == rank) out.me = static_cast<int>(mine - out.ranks.begin());
  return out;
}

std::vector<AttentionRange> visible_ranges(const AttentionTile& tile, const AttentionChunk& q,
                                           const AttentionChunk::Run& keys, int64_t k_at, const VarlenShape& shape) {
  std::vector<AttentionRange> out;
  int64_t q_at = 0;
  for (const AttentionChunk::Run& run : q.runs) {
    // Query i of the run sees keys j <= i + diagonal of the other one.
    const int64_t apart = fault(Fault::tile_from_local_rows) ? 0 : run.begin - keys.begin;
    const int64_t diagonal = apart + tile.k_rows - tile.q_rows;
    const int64_t rows = shape.causal ? std::min(keys.rows, run.rows + diagonal) : keys.rows;
    const bool beyond = shape.causal && shape.window > 0 && diagonal - shape.window >= keys.rows - 1;
    if (rows > 0 && !beyond)
      out.push_back({q_at, run.rows, k_at, rows, shape.causal ? diagonal - (rows - run.rows) : 0});
    q_at += run.rows;
  }
  return out;
}

}  // namespace loom
