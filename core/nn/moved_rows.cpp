#include "core/nn/moved_rows.h"

#include <ATen/ATen.h>

#include "core/base/faults.h"
#include "core/nn/differentiable.h"
#include "core/reshard/rows.h"

namespace loom {

Tensor moved_rows(Communicator& comm, std::string name, const Route& route, Way way, const Tensor& values,
                  const Tensor& source) {
  Route gradients = route;
  if (way == Way::along && fault(Fault::gradient_of_own_rows)) gradients.sends = gradients.receives = {};
  return differentiable(values.detach(), {source}, {},
                        [&comm, name = std::move(name), route = std::move(gradients), way,
                         rows = source.size(0)](const BackwardCall& call) {
                          return std::vector<Tensor>{way == Way::along
                                                         ? redistribute_rows_adjoint(comm, name, route, call.grad, rows)
                                                         : redistribute_rows(comm, name, route, call.grad, rows)};
                        });
}

}  // namespace loom
