#include "core/checkpoint/load_plan.h"

#include <algorithm>

#include "core/base/error.h"

namespace loom {

std::vector<WantedBox> plan_load(const std::vector<std::vector<TensorPart>>& wanted_by_rank, int rank) {
  std::vector<WantedBox> all;
  for (size_t r = 0; r < wanted_by_rank.size(); ++r) {
    for (const TensorPart& part : wanted_by_rank[r]) all.push_back({part, {static_cast<int>(r)}});
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return comes_before(a.part, b.part); });
  std::vector<WantedBox> out;
  size_t turn = 0;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end, ++turn) {
    WantedBox wanted = all[begin];
    for (end = begin + 1; end < all.size() && all[end].part == wanted.part; ++end) {
      LOOM_CHECK(wanted.ranks.back() != all[end].ranks[0], "rank ", all[end].ranks[0], " asks for ", wanted.part.name,
                 wanted.part.box.str(), " twice");
      wanted.ranks.push_back(all[end].ranks[0]);
    }
    wanted.turn = turn;
    if (index_in(wanted.ranks, rank) >= 0) out.push_back(std::move(wanted));
  }
  return out;
}

std::vector<std::optional<Box>> bands(const WantedBox& wanted) {
  const Box& box = wanted.part.box;
  const size_t members = wanted.ranks.size();
  const bool scalar = box.size.empty();
  const int64_t rows = scalar ? 1 : box.size[0], parts = static_cast<int64_t>(members);
  std::vector<std::optional<Box>> out(members);
  for (size_t member = 0; member < members; ++member) {
    const int64_t band = static_cast<int64_t>((member + wanted.turn) % members);
    const int64_t first = rows * band / parts, last = rows * (band + 1) / parts;
    if (first == last) continue;
    out[member] = box;
    if (scalar) continue;
    out[member]->offset[0] += first;
    out[member]->size[0] = last - first;
  }
  return out;
}

}  // namespace loom
