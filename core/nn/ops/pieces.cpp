#include "core/nn/ops/pieces.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "core/nn/ops/cuda_pieces.h"

namespace loom {
namespace {

Pieces from_environment() {
  const char* value = std::getenv("OMNILOOM_PIECES");
  const std::string_view text = value == nullptr ? "fused" : value;
  LOOM_CHECK_USER(text == "fused" || text == "composed", "OMNILOOM_PIECES: expected fused or composed, found '", text,
                  "'");
  return text == "fused" ? Pieces::fused : Pieces::composed;
}

std::atomic<Pieces>& in_use() {
  static std::atomic<Pieces> pieces{from_environment()};
  return pieces;
}

}  // namespace

Pieces pieces_in_use() { return in_use().load(std::memory_order_relaxed); }
void use_pieces(Pieces pieces) { in_use().store(pieces, std::memory_order_relaxed); }

Backend backend_of(const Tensor& x) {
  if (pieces_in_use() == Pieces::composed) return Backend::composed;
  if (x.is_cpu() || x.is_meta()) return Backend::cpu;
  return x.is_cuda() && cuda_pieces() != nullptr ? Backend::cuda : Backend::composed;
}

}  // namespace loom
