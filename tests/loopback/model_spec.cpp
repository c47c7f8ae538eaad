#include "tests/loopback/model_spec.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/loopback/zoo/conv_encoder.h"
#include "tests/loopback/zoo/deep_encoder.h"
#include "tests/loopback/zoo/module_encoder.h"
#include "tests/loopback/zoo/pooled_encoder.h"
#include "tests/loopback/zoo/window_encoder.h"
#include "tests/support/tiny_model.h"

namespace loom::test {
namespace {

static_assert(kZooMedia == kMediaWidth && kZooWidth == kWidth && kZooVocab == kVocab);

std::vector<ModelSpec> make_zoo() {
  const auto one = [](EncoderKind kind) { return std::vector<EncoderChoice>{{"image", kind}}; };
  const BackboneOptions separate{.tied = false, .heads = 4, .kv_heads = 2, .qk_norm = false};
  const BackboneOptions nine_three{.heads = 9, .kv_heads = 3};
  std::vector<ModelSpec> zoo;
  zoo.push_back({.name = "captioner", .encoders = one(EncoderKind::tiny), .captioner = true, .balance = true});
  zoo.push_back({.name = "two_encoders",
                 .encoders = {{"audio", EncoderKind::conv}, {"image", EncoderKind::windows, 2}},
                 .backbone = nine_three});
  zoo.push_back({.name = "conv", .encoders = one(EncoderKind::conv)});
  zoo.push_back({.name = "windows", .encoders = one(EncoderKind::windows), .backbone = separate, .balance = true});
  zoo.push_back({.name = "class_row", .encoders = one(EncoderKind::class_row), .backbone = nine_three});
  zoo.push_back({.name = "mean", .encoders = one(EncoderKind::mean), .backbone = separate});
  zoo.push_back({.name = "deepstack", .encoders = one(EncoderKind::deep)});
  zoo.push_back({.name = "context",
                 .encoders = {{"image", EncoderKind::tiny, 1, Joins::context}},
                 .backbone = {.heads = 4, .kv_heads = 2, .context = true}});
  zoo.push_back({.name = "context_and_text",
                 .encoders = {{"audio", EncoderKind::conv, 1, Joins::context}, {"image", EncoderKind::deep}},
                 .backbone = {.context = true}});
  zoo.push_back({.name = "statistics", .encoders = one(EncoderKind::windows), .backbone = {.statistics = true}});
  zoo.push_back({.name = "balance", .encoders = one(EncoderKind::conv), .backbone = nine_three, .balance = true});
  zoo.push_back({.name = "frozen_prefix",
                 .encoders = one(EncoderKind::deep),
                 .backbone = separate,
                 .frozen = {"encoders.image.embed", "encoders.image.block.0", "backbone.embed", "backbone.blocks.0"}});
  zoo.push_back({.name = "frozen_encoder",
                 .encoders = {{"audio", EncoderKind::conv, 2}, {"image", EncoderKind::windows}},
                 .frozen = {"encoders.image", "backbone.blocks.1.mlp"}});
  zoo.push_back({.name = "module", .encoders = one(EncoderKind::module)});
  zoo.push_back({.name = "merge", .encoders = {{"image", EncoderKind::windows, 3}}, .backbone = nine_three});
  return zoo;
}

std::shared_ptr<Encoder> make_encoder(EncoderKind kind, const Declarer& d, const ZooOptions& options,
                                      const TinyOptions& tiny) {
  switch (kind) {
    case EncoderKind::tiny:
      return std::make_shared<TinyEncoder>(d, tiny);
    case EncoderKind::conv:
      return std::make_shared<ConvEncoder>(d, options);
    case EncoderKind::windows:
      return std::make_shared<WindowEncoder>(d, options);
    case EncoderKind::class_row:
      return std::make_shared<PooledEncoder>(d, options, Pool::class_row);
    case EncoderKind::mean:
      return std::make_shared<PooledEncoder>(d, options, Pool::mean);
    case EncoderKind::deep:
      return std::make_shared<DeepEncoder>(d, options);
    case EncoderKind::module:
      return make_module_encoder(d, options);
  }
  throw InternalError("no such encoder");
}

}  // namespace

const std::vector<ModelSpec>& zoo_models() {
  static const std::vector<ModelSpec> zoo = make_zoo();
  return zoo;
}

const ModelSpec& zoo_model(const std::string& name) {
  for (const ModelSpec& spec : zoo_models()) {
    if (spec.name == name) return spec;
  }
  throw InternalError(concat("no model '", name, "' in the zoo"));
}

namespace {

// A result that depends on its inputs' last bits cannot be more exact than this makes it.
void nudge_weights(MultimodalModel& model, uint64_t seed) {
  uint64_t buffer_number = 0;
  for (UnitBuffer* buffer : model.buffers()) {
    const Philox random({seed, Purpose::noise, buffer_number++});
    const at::Tensor factors = at::empty(buffer->master().sizes(), at::kDouble);
    random.uniforms(0, factors.mutable_data_ptr<double>(), factors.numel());
    const double unit = buffer->master().scalar_type() == at::kDouble ? 0x1p-52 : 0x1p-23;
    buffer->master().mul_(factors.sub_(0.5).mul_(2 * unit).add_(1));
    buffer->master_written();
  }
}

}  // namespace

std::unique_ptr<MultimodalModel> make_model(const ModelSpec& spec, const BindChoice& bind, const WorldLayout& layout,
                                            Communicator* comm) {
  const ZooOptions options{bind.dropout, spec.balance};
  TinyOptions tiny{bind.dtype, bind.dtype};
  tiny.dropout = bind.dropout;
  tiny.tied = bind.tied && spec.backbone.tied;
  tiny.interior_loss = spec.balance;
  const auto bound = [&](const std::string& name, const ComponentLayout& component_layout, const auto& make) {
    Declarations declarations;
    declarations.component = name;
    std::shared_ptr<Component> component = make(Declarer(declarations));
    BindOptions o;
    o.master = o.compute = bind.dtype;
    o.always_slab = bind.always_slab;
    o.keep_weights = bind.keep_weights;
    o.keep_gradients = bind.keep_gradients;
    o.origin = "plugin 'zoo'";
    o.recompute = bind.recompute;
    o.frozen = spec.frozen;
    o.comm = comm;
    o.shard = component_layout.shard;
    o.tile_queries = component_layout.tile_queries;
    o.tp = component_layout.tp;
    return std::make_shared<BoundComponent>(component, std::move(declarations), o);
  };
  ModelParts parts;
  for (const EncoderChoice& choice : spec.encoders) {
    const std::string& m = choice.modality;
    parts.encoders[m] = bound("encoders." + m, layout.encoder(m), [&](const Declarer& d) {
      return choice.custom ? choice.custom(d) : make_encoder(choice.kind, d, options, tiny);
    });
    parts.connectors[m] =
        bound("connectors." + m, layout.connector(m), [&](const Declarer& d) -> std::shared_ptr<Component> {
          if (choice.kind == EncoderKind::deep) return std::make_shared<DeepConnector>(d);
          return std::make_shared<ZooConnector>(d, options, choice.merge, choice.joins);
        });
  }
  parts.backbone = bound("backbone", layout.backbone, [&](const Declarer& d) -> std::shared_ptr<Component> {
    if (spec.captioner) return std::make_shared<TinyBackbone>(d, tiny);
    BackboneOptions backbone = spec.backbone;
    backbone.tied = backbone.tied && bind.tied;
    return std::make_shared<ZooBackbone>(d, options, backbone);
  });
  auto model = std::make_unique<MultimodalModel>(std::move(parts), 7);
  model->init_weights(3);
  if (bind.nudge != 0) nudge_weights(*model, bind.nudge);
  return model;
}

}  // namespace loom::test
