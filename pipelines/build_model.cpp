#include "pipelines/build_model.h"

#include <c10/core/ScalarType.h>

#include "core/base/error.h"
#include "core/nn/tensor_parallel.h"
#include "pipelines/layout_checks.h"

namespace loom {
namespace {

// What a factory throws is the plugin's fault unless it says otherwise.
template <class Made>
Made guarded(const ComponentRecipe& component, const std::string& origin, const std::function<Made()>& make) {
  const auto blame = [&](const std::string& text) {
    return PluginError(
        concat(component.name, " (", origin, ") failed to construct: ", text.substr(0, text.find('\n'))));
  };
  try {
    Made made = make();
    if (made == nullptr) throw PluginError(concat(component.name, " (", origin, "): its factory returned nothing"));
    return made;
  } catch (const UserError& error) {
    throw UserError(concat(component.config.mark.str(), ": model.", component.name, ": ", error.what()));
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw blame(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw blame(error.what());
  }
}

struct Builder {
  const Recipe& recipe;
  const PluginLoader& plugins;
  const BuildOptions& build_options;

  // In a dry run nothing is measured; it takes what sends least.
  int tile_queries(const ComponentLayout& layout, const Declarations& declarations, at::ScalarType type) const {
    if (layout.tile_queries != kLeastTime) return layout.tile_queries;
    const AttentionHeads heads = fewest_heads(declarations, layout.tp);
    if (!build_options.tiles.has_value() || heads.heads == 0) return kLeastTraffic;
    TileWork work;
    work.members = layout.sp;
    work.rows = recipe.data().get_int("budget");
    work.heads = heads.heads;
    work.kv_heads = heads.kv_heads;
    work.head_dim = heads.head_dim;
    work.causal = declarations.component == "backbone";
    work.element_bytes = static_cast<int64_t>(c10::elementSize(type));
    return least_time(work, *build_options.tiles);
  }

  BindOptions options(const std::string& origin, const ComponentLayout& layout,
                      const Declarations& declarations) const {
    BindOptions out;
    const std::string& precision = recipe.train().get_string("precision");
    out.master = precision == "fp64" ? at::kDouble : at::kFloat;
    out.compute = compute_type(precision);
    out.recompute = build_options.recompute.value_or(recipe.train().get_bool("recompute"));
    out.frozen = recipe.frozen;
    out.origin = origin;
    out.comm = build_options.comm;
    out.device = build_options.device;
    out.shard = layout.shard;
    out.tile_queries = tile_queries(layout, declarations, out.compute);
    out.tp = layout.tp;
    if (const ConfigValue* parallel = recipe.tree.find("parallel"); parallel != nullptr && parallel->is_map()) {
      out.keep_weights = parallel->get_string("gather") == "step";
      out.keep_gradients = parallel->get_string("reduce") == "step";
    }
    return out;
  }

  template <class Type, class Make>
  std::pair<std::shared_ptr<BoundComponent>, std::shared_ptr<Type>> build(const ComponentRecipe& component,
                                                                          const ComponentLayout& layout,
                                                                          const Make& make) const {
    const std::string owner = plugins.owner(component.spec->kind, component.spec->name);
    const std::string origin = concat("plugin '", component.spec->name, "', ", owner);
    Declarations declarations;
    declarations.component = component.name;
    const Declarer d(declarations);
    const std::function<std::shared_ptr<Type>()> construct = [&] { return make(*component.spec, d); };
    std::shared_ptr<Type> made = guarded(component, origin, construct);
    check_component(recipe, *component.spec, layout, build_options.layout.world, declarations, origin);
    const BindOptions bound = options(origin, layout, declarations);
    return {std::make_shared<BoundComponent>(made, std::move(declarations), bound), made};
  }
};

}  // namespace

at::ScalarType compute_type(const std::string& precision) {
  if (precision == "bf16") return at::kBFloat16;
  return precision == "fp64" ? at::kDouble : at::kFloat;
}

std::unique_ptr<MultimodalModel> build_model(const Recipe& recipe, int64_t vocab, const PluginLoader& plugins,
                                             const BuildOptions& options) {
  const WorldLayout& layout = options.layout;
  const Builder builder{recipe, plugins, options};
  ModelParts parts;
  const auto [bound, backbone] =
      builder.build<Backbone>(recipe.backbone, layout.backbone, [&](const ComponentSpec& spec, const Declarer& d) {
        return spec.backbone(recipe.backbone.config, BackboneArgs{vocab}, d);
      });
  parts.backbone = bound;
  for (const auto& [modality, component] : recipe.encoders) {
    const auto [encoder_bound, encoder] = builder.build<Encoder>(
        component, layout.encoder(modality),
        [&, &c = component](const ComponentSpec& spec, const Declarer& d) { return spec.encoder(c.config, d); });
    parts.encoders[modality] = encoder_bound;
    const ComponentRecipe& connector = recipe.connectors.at(modality);
    const ConnectorArgs widths{encoder->width(), backbone->width()};
    const auto make = [&](const ComponentSpec& spec, const Declarer& d) {
      return spec.connector(connector.config, widths, d);
    };
    parts.connectors[modality] = builder.build<Connector>(connector, layout.connector(modality), make).first;
  }
  const auto seed = static_cast<uint64_t>(recipe.train().get_int("seed"));
  auto model = std::make_unique<MultimodalModel>(std::move(parts), seed);
  model->init_weights(seed);
  return model;
}

}  // namespace loom
