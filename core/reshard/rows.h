#pragma once
// Redistribution of the rows of one tensor: what the bridge between components and the services of a unit both do.
#include <cstdint>
#include <string_view>

#include "core/reshard/redistribute.h"

namespace loom {

// rows [source rows, width] -> [destination_rows, width] along a route whose elements are rows; rows that nothing moves
// to are zero. No autograd.
Tensor redistribute_rows(Communicator& comm, std::string_view what, const Route& route, const Tensor& rows,
                         int64_t destination_rows);
// The adjoint: gradient of the result -> gradient of `rows` [source_rows, width].
Tensor redistribute_rows_adjoint(Communicator& comm, std::string_view what, const Route& route, const Tensor& gradient,
                                 int64_t source_rows);

}  // namespace loom
