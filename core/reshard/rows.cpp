#include "core/reshard/rows.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "core/comm/communicator.h"

namespace loom {

Tensor redistribute_rows(Communicator& comm, std::string_view what, const Route& route, const Tensor& rows,
                         int64_t destination_rows) {
  const c10::NoGradGuard no_grad;
  const int64_t width = rows.size(1);
  Tensor out = at::zeros({destination_rows, width}, rows.options());
  redistribute(comm, what, {{&route, rows.detach().contiguous(), out, width}});
  return out;
}

Tensor redistribute_rows_adjoint(Communicator& comm, std::string_view what, const Route& route, const Tensor& gradient,
                                 int64_t source_rows) {
  const c10::NoGradGuard no_grad;
  const int64_t width = gradient.size(1);
  Tensor out = at::zeros({source_rows, width}, gradient.options());
  redistribute_adjoint(comm, what, {{&route, out, gradient.contiguous(), width}});
  return out;
}

}  // namespace loom
