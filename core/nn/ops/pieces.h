#pragma once
// Which implementation of the fused pieces (the other headers of this folder) runs. Each piece exists as a composition
// of ATen's operations, which any device and dtype can run and autograd differentiates by itself: the reference of its
// tests, and what runs where there is nothing faster. On CPU there is one of our own over kernels/, on CUDA, where
// built, one over ATen's fused operations.
#include "core/base/tensor.h"

namespace loom {

enum class Pieces { fused = 1, composed };

// For the process. At the start: what the environment variable OMNILOOM_PIECES says (fused, composed), else fused.
Pieces pieces_in_use();
void use_pieces(Pieces pieces);

class ScopedPieces {
 public:
  explicit ScopedPieces(Pieces pieces) : before_(pieces_in_use()) { use_pieces(pieces); }
  ~ScopedPieces() { use_pieces(before_); }
  ScopedPieces(const ScopedPieces&) = delete;
  ScopedPieces& operator=(const ScopedPieces&) = delete;

 private:
  Pieces before_;
};

// What a piece does with x. Tensors without memory (a dry run) go the way of the CPU.
enum class Backend { composed = 1, cpu, cuda };
Backend backend_of(const Tensor& x);

}  // namespace loom
