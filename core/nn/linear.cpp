#include "core/nn/linear.h"

#include "core/nn/context.h"
#include "core/nn/ops/linear.h"

namespace loom {

Linear::Linear(const Declarer& d, int64_t in, int64_t out, const LinearOptions& options) {
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

Tensor Linear::operator()(const Tensor& x_TI, UnitContext& ctx) const { return linear(x_TI, weight(ctx), bias(ctx)); }

Tensor Linear::add(const Tensor& x_TI, const Tensor& residual_TO, UnitContext& ctx) const {
  return linear(x_TI, weight(ctx), bias(ctx), residual_TO);
}

}  // namespace loom
