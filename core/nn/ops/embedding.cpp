#include "core/nn/ops/embedding.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/differentiable.h"
#include "core/nn/kernels/row_threads.h"
#include "core/nn/ops/parameter_gradients.h"
#include "core/nn/ops/pieces.h"

namespace loom {
namespace {

void check_ids(const Tensor& ids, int64_t rows) {
  if (ids.is_meta()) return;
  const auto* id = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.size(0); ++i)
    LOOM_CHECK(id[i] >= 0 && id[i] < rows, "embedding: row ", id[i], " of a table of ", rows);
}

Tensor gathered(const Tensor& table, const Tensor& ids, const Tensor& more) {
  RECORD_FUNCTION("loom::embedding", std::vector<c10::IValue>{});
  const c10::NoGradGuard no_grad;
  Tensor y = at::empty({ids.size(0), table.size(1)}, table.options());
  const Tensor rows = rows::work_tensor(table), added = more.defined() ? rows::work_tensor(more) : more;
  rows::dispatch(rows, [&](auto zero) {
    using T = decltype(zero);
    const kernels::Rows<const T> x = added.defined() ? rows::read<T>(added) : kernels::Rows<const T>{};
    rows::parallel(ids.size(0), table.size(1), [&](int64_t begin, int64_t end) {
      kernels::kernel_set<T>().gather_rows(rows::read<T>(rows), ids.const_data_ptr<int64_t>(), x, rows::write<T>(y),
                                           table.size(1), begin, end);
    });
  });
  return y;
}

}  // namespace

Tensor embedding(const Weight& table, const Tensor& ids_T, const Tensor& more_TW) {
  const Tensor& values = table.value;
  const bool plain = ids_T.dim() == 1 && ids_T.scalar_type() == at::kLong &&
                     values.scalar_type() == rows::work_dtype(values) &&
                     (!more_TW.defined() || more_TW.scalar_type() == values.scalar_type());
  if (backend_of(values) != Backend::cpu || !plain) {
    const Tensor y = at::embedding(values, ids_T);
    return more_TW.defined() ? more_TW + y : y;
  }
  LOOM_CHECK(!more_TW.defined() || (more_TW.dim() == 2 && more_TW.size(0) == ids_T.size(0)),
             "embedding: ", ids_T.size(0), " rows are added to ", more_TW.sizes());
  const Tensor ids = ids_T.contiguous();
  check_ids(ids, values.size(0));
  const Tensor y = gathered(values, ids, more_TW);
  std::vector<Tensor> inputs{values};
  if (more_TW.defined()) inputs.push_back(more_TW);
  return differentiable(y, inputs, {ids}, [sink = table.sink, table_rows = values.size(0)](const BackwardCall& call) {
    std::vector<Tensor> out(call.needs.size());
    if (call.needs[0]) out[0] = table_gradient(sink, call.grad, call.saved[0], table_rows);
    if (call.needs.size() > 1 && call.needs[1]) out[1] = call.grad;
    return out;
  });
}

}  // namespace loom
