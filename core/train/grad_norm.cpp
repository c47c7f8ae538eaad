// One pass over every gradient: chunks are summed in parallel, each in an order of its own, and their sums are added
// one by one.
#include "core/train/grad_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "core/base/error.h"
#include "core/train/param_groups.h"
#include "core/train/update_kernels.h"

namespace loom {
namespace {

constexpr int64_t kChunk = 1 << 14;

struct Piece {
  UnitBuffer* buffer;
  size_t entry;
  int64_t begin, end;  // in elements of the buffer
};

std::vector<Piece> cut_into_pieces(const std::vector<UnitBuffer*>& buffers) {
  std::vector<Piece> pieces;
  for (UnitBuffer* buffer : buffers) {
    if (!buffer->trainable()) continue;
    for (size_t e = 0; e < buffer->entries().size(); ++e) {
      const BufferEntry& entry = buffer->entries()[e];
      for (int64_t at = 0; at < entry.numel; at += kChunk) {
        pieces.push_back({buffer, e, entry.offset + at, entry.offset + std::min(at + kChunk, entry.numel)});
      }
    }
    buffer->gradient();  // made on first use, so it must not happen inside the parallel loop
  }
  return pieces;
}

}  // namespace

GradNorm gradient_norm(const std::vector<UnitBuffer*>& buffers) {
  const std::vector<Piece> pieces = cut_into_pieces(buffers);
  std::vector<double> sums(pieces.size());
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t p = from; p < to; ++p) {
      const Piece& piece = pieces[static_cast<size_t>(p)];
      const at::Tensor& gradient = piece.buffer->gradient();
      AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "gradient_norm", [&] {
        sums[static_cast<size_t>(p)] =
            kernels::sum_of_squares(gradient.const_data_ptr<scalar_t>() + piece.begin, piece.end - piece.begin);
      });
    }
  });

  GradNorm norm;
  double total = 0;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const std::string& name = pieces[p].buffer->entries()[pieces[p].entry].name;
    const std::string component = component_of(name);
    auto place = std::find_if(norm.components.begin(), norm.components.end(),
                              [&](const auto& c) { return c.first == component; });
    if (place == norm.components.end()) place = norm.components.insert(place, {component, 0.0});
    place->second += sums[p];
    total += sums[p];
    if (!std::isfinite(sums[p]) && norm.not_finite.empty()) norm.not_finite = name;
  }
  for (auto& component : norm.components) component.second = std::sqrt(component.second);
  norm.total = std::sqrt(total);
  return norm;
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace loom
