#pragma once
// Between unit buffers, which know memory, and checkpoints, which know boxes of global tensors: which parts of a buffer
// a rank holds, under global names.
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/parallel/unit_buffer.h"

namespace loom {

// Appends this rank's parts of `flat`, a tensor that lies like the buffer's master weights, as views named
// prefix + parameter. A parameter of which the rank holds nothing is there, too, with an empty box, so that all ranks
// ask a checkpoint for the same names and find the same mistakes. Parts that another rank counts are not `counted`.
void append_parts(const UnitBuffer& buffer, const Tensor& flat, const std::string& prefix,
                  std::vector<NamedTensor>& out);

}  // namespace loom
