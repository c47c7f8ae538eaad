// Where parameters lie in the memory that ranks share, so that equal parts end between blocks (mechanisms of
// veScale-FSDP: the planner). Order is kept; padding goes only between parameters and at the end. The place of a
// parameter for a given size of parts is a formula, not a search: matrices of real models have millions of candidates.
#include <algorithm>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/parallel/unit_buffer.h"

namespace loom {
namespace {

constexpr int64_t kExact = 4'000'000;  // placements that are tried with every size of parts, before steps grow

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Elements that stay together: a block of rows of dimension 0, or one.
int64_t block_elements(const BufferEntry& param) {
  if (param.block == 0) return 1;
  int64_t n = param.block;
  for (size_t d = 1; d < param.shape.size(); ++d) n *= param.shape[d];
  return std::max<int64_t>(n, 1);
}

// The smallest aligned place from `at` on where borders at multiples of `part` fall between rows: within one part, or
// so that the first border is a whole number of rows away, and, when more borders are crossed, parts are whole rows
// too. What does not go before the next border or from there on never goes.
std::optional<int64_t> place_from(int64_t at, const BufferEntry& param, int64_t part, int64_t align) {
  const int64_t row = block_elements(param), step = std::lcm(row, align);
  for (int turn = 0; turn < 2; ++turn) {
    const int64_t border = (at / part + 1) * part;
    if (at + param.numel <= border) return at;
    const int64_t before = (border - at) / step * step;  // elements in front of the border
    if (before > 0 && (border - before + param.numel <= border + part || part % row == 0)) return border - before;
    at = border;
  }
  return std::nullopt;
}

bool place_all(std::vector<BufferEntry>& params, int ranks, int64_t part, int64_t align) {
  int64_t at = 0;
  for (BufferEntry& param : params) {
    const std::optional<int64_t> found = place_from(at, param, part, align);
    if (!found) return false;
    param.offset = *found;
    at = round_up(*found + param.numel, align);
    if (at > part * ranks) return false;
  }
  return true;
}

// The next size worth trying once steps are coarse: whole rows of some parameter, or 1/1024 more.
int64_t coarse_step(const std::vector<BufferEntry>& params, int64_t part, int64_t align) {
  int64_t next = part + round_up(part / 1024, align);
  for (const BufferEntry& param : params) {
    next = std::min(next, round_up(part + 1, std::lcm(block_elements(param), align)));
  }
  // Tiny rows would make every step a small one.
  return std::max(next, part + round_up(part / 65536, align));
}

}  // namespace

int64_t place_params(std::vector<BufferEntry>& params, int ranks, int64_t align) {
  int64_t total = 0;
  for (const BufferEntry& param : params) total += round_up(param.numel, align);
  // Everything on one rank always fits within this.
  const int64_t enough = std::max(total, align);
  int64_t part = std::max(round_up((total + ranks - 1) / ranks, align), align), placed = 0;
  while (part < enough) {
    if (place_all(params, ranks, part, align)) return part;
    placed += static_cast<int64_t>(params.size());
    part = placed < kExact ? part + align : coarse_step(params, part, align);
  }
  LOOM_CHECK(place_all(params, ranks, enough, align), "parameters cannot be placed on ", ranks, " ranks");
  return enough;
}

}  // namespace loom
