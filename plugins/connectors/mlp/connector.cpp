#include "plugins/connectors/mlp/connector.h"

#include <ATen/ATen.h>

#include "core/base/error.h"

namespace loom::mlp {
namespace {

UnitDecl project_unit(const Config& c) {
  StreamDecl in, out;
  in.name = "features";
  in.width = c.in_width;
  out.name = "embeddings";
  out.width = c.out_width;
  out.partition = "slots";
  UnitDecl decl;
  decl.name = "project";
  decl.inputs = {in};
  decl.outputs = {out};
  return decl;
}

GeluMlpOptions mlp_options(const Config& c) {
  GeluMlpOptions o;
  o.in = c.in_width * c.merge;
  o.hidden = c.hidden;
  o.out = c.out_width;
  o.bias = c.bias;
  o.gelu = c.tanh_gelu ? Gelu::tanh : Gelu::exact;
  o.partition = "slots";
  return o;
}

}  // namespace

MlpConnector::MlpConnector(const Config& config, const Declarer& d)
    : MlpConnector(config, d.unit(project_unit(config)), 1) {}

MlpConnector::MlpConnector(const Config& config, const Declarer& unit, int /*declared*/)
    : config_(config), projector_(unit, mlp_options(config)) {
  if (config.norm == InputNorm::layer) layer_norm_.emplace(unit.child("norm"), config.in_width);
  if (config.norm == InputNorm::rms) rms_norm_.emplace(unit.child("norm"), config.in_width);
}

void MlpConnector::run(int /*unit*/, Streams& s, UnitContext& ctx) {
  Tensor x = s["features"];
  if (layer_norm_) x = (*layer_norm_)(x, ctx);
  if (rms_norm_) x = (*rms_norm_)(x, ctx);
  // The outputs of every item divide by merge, so no row of the result mixes two items.
  LOOM_CHECK(x.size(0) % config_.merge == 0, x.size(0), " encoder rows do not divide by merge ", config_.merge);
  s.set("embeddings", projector_(x.reshape({x.size(0) / config_.merge, config_.in_width * config_.merge}), ctx));
}

}  // namespace loom::mlp
