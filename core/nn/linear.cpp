#include "core/nn/linear.h"

#include "core/base/faults.h"
#include "core/nn/context.h"
#include "core/nn/ops/linear.h"

namespace loom {

Linear::Linear(const Declarer& d, int64_t in, int64_t out, const LinearOptions& options)
    : split_(options.split), partition_(options.partition) {
  weight_ = d.param("weight", {out, in}, options.init.value_or(Init::fan_in(in)),
                    {options.split, options.block, options.parts});
  if (!options.bias) return;
  // The bias of a row split is added once, after the sum over ranks, so it is not cut.
  const bool cut = options.split == Split::column;
  bias_ = d.param("bias", {out}, Init::zeros(),
                  {cut ? Split::column : Split::none, cut ? options.block : 1, options.parts});
}

Weight Linear::weight(UnitContext& ctx) const { return ctx.weight(weight_); }
Weight Linear::bias(UnitContext& ctx) const { return ctx.weight(bias_); }

Tensor Linear::columns(const Tensor& x_TI, UnitContext& ctx) const {
  return split_ == Split::column ? ctx.gather_rows(x_TI, partition_) : x_TI;
}

Tensor Linear::summed(const Tensor& residual_TO, UnitContext& ctx, const Product& product) const {
  if (split_ != Split::row || ctx.tensor_ranks() == 1) return product(bias(ctx), residual_TO);
  const bool each = fault(Fault::bias_per_member);
  Tensor y = ctx.sum_rows(product(each ? bias(ctx) : Weight(), {}), partition_);
  if (bias_.declared() && !each) y = y + ctx[bias_];
  return residual_TO.defined() ? residual_TO + y : y;
}

Tensor Linear::operator()(const Tensor& x_TI, UnitContext& ctx) const { return add(x_TI, Tensor(), ctx); }

Tensor Linear::add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const {
  return summed(residual_TO, ctx, [&](const Weight& bias, const Tensor& residual) {
    return linear(columns(x_TI, ctx), weight(ctx), bias, residual);
  });
}

}  // namespace loom
