// Shapes and temporaries follow ATen's CPU kernels.
#include "core/model/meta_kernels.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <mutex>
#include <optional>
#include <tuple>

namespace loom {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Mask = std::array<bool, 3>;

Tensor like_if(bool wanted, const Tensor& like) { return wanted ? at::empty_like(like) : Tensor(); }

std::vector<int64_t> selected_sizes(const Tensor& self, int64_t dim, const Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return sizes;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  return at::empty(selected_sizes(self, dim, index), self.options());
}

Tensor& index_select_out(const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  out.resize_(selected_sizes(self, dim, index));
  return out;
}

// LibTorch's own takes another way for tensors without memory, which fails when no row was selected.
Tensor index_select_backward(const Tensor& grad, IntArrayRef sizes, int64_t /*dim*/, const Tensor& /*index*/) {
  return at::zeros(sizes, grad.options());
}

Tensor embedding_dense_backward(const Tensor& grad, const Tensor& indices, int64_t weights, int64_t /*padding*/,
                                bool /*scale*/) {
  const Tensor rows = grad.contiguous(), ids = indices.contiguous();
  return at::zeros({weights, grad.size(-1)}, grad.options());
}

Three native_layer_norm(const Tensor& x, IntArrayRef shape, const std::optional<Tensor>& weight,
                        const std::optional<Tensor>& /*bias*/, double /*eps*/) {
  std::vector<int64_t> rows = x.sizes().vec();
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(shape.size()), rows.end(), 1);
  const bool mixed = weight.has_value() && weight->defined() && weight->scalar_type() != x.scalar_type();
  const auto statistics = x.options().dtype(mixed ? at::kFloat : x.scalar_type());
  return {at::empty_like(x.contiguous()), at::empty(rows, statistics), at::empty(rows, statistics)};
}

Three native_layer_norm_backward(const Tensor& /*grad*/, const Tensor& x, IntArrayRef shape, const Tensor& /*mean*/,
                                 const Tensor& /*rstd*/, const std::optional<Tensor>& weight,
                                 const std::optional<Tensor>& bias, Mask mask) {
  const Tensor dx = like_if(mask[0], x);
  const bool w = mask[1] && weight.has_value() && weight->defined(), b = mask[2] && bias.has_value() && bias->defined();
  const Tensor dw = w ? at::empty_like(*weight) : Tensor(), db = b ? at::empty_like(*bias) : Tensor();
  const Tensor sums = at::empty({2, at::get_num_threads(), c10::multiply_integers(shape)}, x.options());
  return {dx, dw, db};
}

Three native_group_norm(const Tensor& x, const std::optional<Tensor>& /*weight*/, const std::optional<Tensor>& /*bias*/,
                        int64_t n, int64_t /*channels*/, int64_t /*cells*/, int64_t groups, double /*eps*/) {
  return {at::empty_like(x), at::empty({n, groups}, x.options()), at::empty({n, groups}, x.options())};
}

Three native_group_norm_backward(const Tensor& /*grad*/, const Tensor& x, const Tensor& /*mean*/,
                                 const Tensor& /*rstd*/, const std::optional<Tensor>& /*weight*/, int64_t n,
                                 int64_t channels, int64_t /*cells*/, int64_t /*groups*/, Mask mask) {
  const Tensor dx = like_if(mask[0], x), sums = at::empty({2, n, channels}, x.options());
  const Tensor dw = mask[1] ? at::empty({channels}, x.options()) : Tensor();
  return {dx, dw, mask[2] ? at::empty({channels}, x.options()) : Tensor()};
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& /*bias*/, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  std::vector<int64_t> out{x.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  const auto at_axis = [](IntArrayRef values, size_t axis) { return values.size() == 1 ? values[0] : values[axis]; };
  for (size_t axis = 0; axis + 2 < static_cast<size_t>(x.dim()); ++axis) {
    const auto d = static_cast<int64_t>(axis) + 2;
    const int64_t reach = at_axis(dilation, axis) * (weight.size(d) - 1), pad = 2 * at_axis(padding, axis);
    const int64_t step = at_axis(stride, axis);
    out.push_back(transposed ? (x.size(d) - 1) * step - pad + reach + at_axis(output_padding, axis) + 1
                             : (x.size(d) + pad - reach - 1) / step + 1);
  }
  return at::empty(out, x.options());
}

Three convolution_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, at::OptionalIntArrayRef bias,
                           IntArrayRef /*stride*/, IntArrayRef /*padding*/, IntArrayRef /*dilation*/,
                           bool /*transposed*/, IntArrayRef /*output_padding*/, int64_t /*groups*/, Mask mask) {
  const Tensor dx = like_if(mask[0], x), dw = like_if(mask[1], weight);
  return {dx, dw, mask[2] && bias.has_value() ? at::empty(*bias, grad.options()) : Tensor()};
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const std::vector<int64_t> both = at::infer_size(self.sizes(), other.sizes());
  return at::empty(at::infer_size(condition.sizes(), both), self.options().dtype(at::result_type(self, other)));
}

Tensor& where_out(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  out.resize_(at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes())));
  return out;
}

std::tuple<Tensor, Tensor> var_mean(const Tensor& self, at::OptionalIntArrayRef dim,
                                    const std::optional<at::Scalar>& /*correction*/, bool keepdim) {
  const Tensor mean = at::mean(self, dim, keepdim);
  return {at::empty_like(mean), mean};
}

Tensor adaptive_avg_pool2d(const Tensor& x, IntArrayRef size) {
  std::vector<int64_t> sizes = x.sizes().vec();
  std::copy(size.begin(), size.end(), sizes.end() - 2);
  return at::empty(sizes, x.options());
}

Tensor adaptive_avg_pool2d_backward(const Tensor& /*grad*/, const Tensor& x) { return at::empty_like(x); }

}  // namespace

void install_meta_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    const auto add = [](const char* name, const char* overload, auto kernel) {
      const std::string full = std::string("aten::") + name;
      const auto op = c10::Dispatcher::singleton().findSchema({full, overload});
      if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) return;
      library.impl((std::string(name) + (*overload != '\0' ? "." : "") + overload).c_str(), kernel);
    };
    add("index_select", "", &index_select);
    add("index_select", "out", &index_select_out);
    add("index_select_backward", "", &index_select_backward);
    add("embedding_dense_backward", "", &embedding_dense_backward);
    add("native_layer_norm", "", &native_layer_norm);
    add("native_layer_norm_backward", "", &native_layer_norm_backward);
    add("native_group_norm", "", &native_group_norm);
    add("native_group_norm_backward", "", &native_group_norm_backward);
    add("convolution", "", &convolution);
    add("convolution_backward", "", &convolution_backward);
    add("where", "self", &where);
    add("where", "self_out", &where_out);
    add("var_mean", "correction", &var_mean);
    add("_adaptive_avg_pool2d", "", &adaptive_avg_pool2d);
    add("_adaptive_avg_pool2d_backward", "", &adaptive_avg_pool2d_backward);
  });
}

}  // namespace loom
