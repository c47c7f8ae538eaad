#include "core/nn/linear.h"

#include <ATen/ATen.h>

#include "core/nn/context.h"

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

Tensor Linear::operator()(const Tensor& x_TI, UnitContext& ctx) const {
  return at::linear(x_TI, ctx[weight_], bias_.declared() ? std::optional<Tensor>(ctx[bias_]) : std::nullopt);
}

}  // namespace loom
