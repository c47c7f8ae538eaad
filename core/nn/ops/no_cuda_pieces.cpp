// Omniloom was built without CUDA.
#include "core/nn/ops/cuda_pieces.h"

namespace loom {

const CudaPieces* cuda_pieces() { return nullptr; }

}  // namespace loom
