#include "core/nn/norm.h"

#include "core/nn/context.h"

namespace loom {

RmsNorm::RmsNorm(const Declarer& d, int64_t width, double eps)
    : weight_(d.param("weight", {width}, Init::ones())), eps_(eps) {}

Tensor RmsNorm::operator()(const Tensor& x, UnitContext& ctx) const { return norm(x, ctx.weight(weight_), {}, eps_); }

AddedNorm RmsNorm::add(const Tensor& x, const Tensor& delta, UnitContext& ctx) const {
  return add_norm(x, delta, ctx.weight(weight_), {}, eps_);
}

LayerNorm::LayerNorm(const Declarer& d, int64_t width, double eps)
    : weight_(d.param("weight", {width}, Init::ones())), bias_(d.param("bias", {width}, Init::zeros())), eps_(eps) {}

Tensor LayerNorm::operator()(const Tensor& x, UnitContext& ctx) const {
  return norm(x, ctx.weight(weight_), ctx.weight(bias_), eps_);
}

AddedNorm LayerNorm::add(const Tensor& x, const Tensor& delta, UnitContext& ctx) const {
  return add_norm(x, delta, ctx.weight(weight_), ctx.weight(bias_), eps_);
}

}  // namespace loom
