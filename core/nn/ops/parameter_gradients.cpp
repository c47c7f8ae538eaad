#include "core/nn/ops/parameter_gradients.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include "core/nn/kernels/row_threads.h"
#include "core/nn/ops/matmul.h"

namespace loom {
namespace {

bool is_wide(const Tensor& x) { return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble; }

// A thread's share of columns, in whole tiles of the kernel.
template <class F>
void parallel_columns(int64_t columns, int64_t rows, const F& f) {
  constexpr int64_t kTile = 256;
  rows::parallel((columns + kTile - 1) / kTile, rows * kTile,
                 [&](int64_t begin, int64_t end) { f(begin * kTile, std::min(columns, end * kTile)); });
}

}  // namespace

Tensor readable(const Tensor& x) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const bool by_row = (columns <= 1 || x.stride(1) == 1) && (rows <= 1 || x.stride(0) >= columns);
  const bool by_column = (rows <= 1 || x.stride(0) == 1) && (columns <= 1 || x.stride(1) >= rows);
  return by_row || by_column ? x : x.contiguous();
}

Tensor gradient_into(GradientSink* sink, at::IntArrayRef shape, const at::TensorOptions& options,
                     const std::function<void(const Tensor& sum, bool fresh)>& write) {
  if (sink == nullptr) {
    Tensor gradient = at::empty(shape, options);
    write(gradient, true);
    return gradient;
  }
  GradientTarget target = sink->open();
  if (target.sum.scalar_type() == options.dtype().toScalarType()) {
    write(target.sum, target.fresh);
    return Tensor();
  }
  const Tensor gradient = at::empty(shape, options);
  write(gradient, true);
  const Tensor same = gradient.to(target.sum.scalar_type());
  if (target.fresh) {
    target.sum.copy_(same);
  } else {
    target.sum.add_(same);
  }
  return Tensor();
}

Tensor product_gradient(GradientSink* sink, const Tensor& dy, const Tensor& x) {
  const Tensor a = readable(dy).t(), b = readable(x);
  if (!is_wide(dy)) return loom::matmul(a, b);
  return gradient_into(sink, {a.size(0), b.size(1)}, dy.options(),
                       [&](const Tensor& sum, bool fresh) { matmul_into(sum, a, b, !fresh); });
}

Tensor column_gradient(GradientSink* sink, const Tensor& dy) {
  if (!is_wide(dy)) return dy.sum(0);
  RECORD_FUNCTION("loom::column_sums", std::vector<c10::IValue>{});
  const Tensor rows = rows::work_tensor(dy);
  return gradient_into(sink, {dy.size(1)}, dy.options(), [&](const Tensor& sum, bool fresh) {
    rows::dispatch(rows, [&](auto zero) {
      using T = decltype(zero);
      T* out = sum.mutable_data_ptr<T>();
      parallel_columns(rows.size(1), rows.size(0), [&](int64_t begin, int64_t end) {
        kernels::kernel_set<T>().column_sums(rows::read<T>(rows), rows.size(0), out, fresh, begin, end);
      });
    });
  });
}

Tensor table_gradient(GradientSink* sink, const Tensor& dy, const Tensor& ids, int64_t table_rows) {
  if (!is_wide(dy)) return at::embedding_dense_backward(dy, ids, table_rows, -1, false);
  RECORD_FUNCTION("loom::embedding_backward", std::vector<c10::IValue>{});
  const Tensor rows = rows::work_tensor(dy);
  return gradient_into(sink, {table_rows, dy.size(1)}, dy.options(), [&](const Tensor& sum, bool fresh) {
    if (fresh) Tensor(sum).zero_();
    rows::dispatch(rows, [&](auto zero) {
      using T = decltype(zero);
      const kernels::Rows<T> table = rows::write<T>(sum);
      parallel_columns(rows.size(1), rows.size(0), [&](int64_t begin, int64_t end) {
        kernels::kernel_set<T>().scatter_rows(rows::read<T>(rows), ids.const_data_ptr<int64_t>(), rows.size(0), table,
                                              begin, end);
      });
    });
  });
}

}  // namespace loom
