// Where parameters lie in the memory that ranks share, so that equal parts end between rows (mechanisms of
// veScale-FSDP: the planner). Order is kept; padding goes only between parameters and at the end.
#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "core/parallel/unit_buffer.h"

namespace loom {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Elements that stay together: a row of dimension 0.
int64_t row_elements(const BufferEntry& param) {
  int64_t n = 1;
  for (size_t d = 1; d < param.shape.size(); ++d) n *= param.shape[d];
  return n;
}

// May a parameter that begins at `at` be cut by borders at multiples of `part`?
bool legal(int64_t at, int64_t numel, int64_t row, int64_t part) {
  for (int64_t border = (at / part + 1) * part; border < at + numel; border += part) {
    if ((border - at) % row != 0) return false;
  }
  return true;
}

// The smallest aligned place from `at` on where the parameter may lie; none within one part's length is a refusal.
std::optional<int64_t> place_from(int64_t at, const BufferEntry& param, int64_t part, int64_t align) {
  const int64_t row = row_elements(param);
  for (int64_t candidate = at; candidate <= at + part; candidate += align) {
    if (legal(candidate, param.numel, row, part)) return candidate;
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

}  // namespace

int64_t place_params(std::vector<BufferEntry>& params, int ranks, int64_t align) {
  int64_t total = 0;
  for (const BufferEntry& param : params) total += round_up(param.numel, align);
  const int64_t first = round_up(std::max<int64_t>((total + ranks - 1) / ranks, 1), align);
  if (ranks == 1) {
    LOOM_CHECK(place_all(params, 1, first, align), "parameters of one rank cannot be placed");
    return first;
  }
  // Every parameter whole on one rank always fits within this.
  const int64_t enough = round_up(total, align);
  for (int64_t part = first; part < enough; part += align) {
    if (place_all(params, ranks, part, align)) return part;
  }
  LOOM_CHECK(place_all(params, ranks, enough, align), "parameters cannot be placed on ", ranks, " ranks");
  return enough;
}

}  // namespace loom
