#pragma once
// Between tensors that lie in parts on many ranks and checkpoints that know whole tensors: which parts of a unit buffer
// a rank holds, under global names, and bringing the parts of all ranks together on rank 0, which writes.
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/comm/communicator.h"
#include "core/parallel/unit_buffer.h"

namespace loom {

// Appends this rank's parts of `flat`, a tensor that lies like the buffer's master weights, as views named
// prefix + parameter. A parameter of which the rank holds nothing is there, too, with an empty box, so that all ranks
// ask a checkpoint for the same names and find the same mistakes. Parts that another rank counts are not `counted`.
void append_parts(const UnitBuffer& buffer, const Tensor& flat, const std::string& prefix,
                  std::vector<NamedTensor>& out);

// The whole tensors on rank 0, nothing elsewhere; all ranks call it. Each counted part is sent once, as a message of
// its own, straight into its place where the place is contiguous; what rank 0 holds whole is not copied.
std::vector<NamedTensor> gather_tensors(Communicator& comm, const std::vector<NamedTensor>& mine);

}  // namespace loom
