#include "pipelines/layout_checks.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/source.h"
#include "core/nn/tensor_parallel.h"
#include "pipelines/parallel_section.h"

namespace loom {
namespace {

// A component's section by its name, "backbone" or "encoders.image"; there is one where the layout is not the default.
const ConfigValue& section_of(const Recipe& recipe, const std::string& component) {
  const ConfigValue& parallel = recipe.tree.at("parallel");
  const size_t dot = component.find('.');
  if (dot == std::string::npos) return parallel.at(component);
  const ConfigValue* section =
      find_component_section(parallel, component.substr(0, dot).c_str(), component.substr(dot + 1));
  LOOM_CHECK(section != nullptr, "parallel.", component, " is not there");
  return *section;
}

std::vector<std::string> sizes_up_to(int64_t most) {
  std::vector<std::string> out;
  for (int64_t size = 1; size <= most; ++size) out.push_back(std::to_string(size));
  return out;
}

void check_rows(const ConfigValue& section, const ComponentLayout& layout, int world, const Declarations& declarations,
                const std::string& origin) {
  if (layout.sp == 1) return;
  const std::string& name = declarations.component;
  const bool lanes = name == "backbone";  // an encoder's items stay whole where they must
  if (const UnitDecl* unit = whole_unit(declarations)) {
    LOOM_CHECK_USER(!lanes, said_at(section.at("sp")), "the ranks of a lane are ", layout.sp, ", but unit ",
                    quote_text(unit->name), " of ", name, " (", origin,
                    ") mixes a whole sample and cannot be split; expected 1");
    return;
  }
  if (layout.tile_queries != kByHeads || declarations.attention.heads == 0) return;
  // Of a rank beyond the number of heads there would be no use.
  const int64_t heads = fewest_heads(declarations, layout.tp).heads;
  if (layout.sp <= heads) return;
  const std::vector<std::string> legal =
      lanes ? divisors(world / layout.tp, heads) : sizes_up_to(std::min<int64_t>(heads, world));
  throw UserError(concat(said_at(section.at("sp")), lanes ? "a lane is " : "an item is shared by up to ", layout.sp,
                         " ranks, but attention of ", name, " has ", heads, heads == 1 ? " head" : " heads",
                         layout.tp > 1 ? concat(" on each of ", layout.tp, " ranks (tp)") : "", "; expected one of ",
                         join(legal, ", "), ", or attention: ring"));
}

void check_layers(const ConfigValue& section, const ComponentSpec& spec, const ComponentLayout& layout,
                  const Declarations& declarations) {
  if (layout.tp == 1) return;
  const std::string at = said_at(section.at("tp"));
  const std::vector<std::string>& axes = spec.capabilities.axes;
  LOOM_CHECK_USER(std::find(axes.begin(), axes.end(), "tp") != axes.end(), at, "plugin '", spec.name,
                  "' does not say that its layers can be split (axes: ", join(axes, ", "), "); expected 1");
  const SplitLimit limit = split_limit(declarations);
  LOOM_CHECK_USER(limit.ranks > 0, at, "no layer of ", declarations.component, " is split; expected 1");
  LOOM_CHECK_USER(layout.tp <= limit.ranks, at, layout.tp, " ranks share the layers of ", declarations.component,
                  ", but ", limit.param, " can be cut into ", limit.ranks, " parts; expected at most ", limit.ranks);
}

}  // namespace

std::vector<std::string> divisors(int n, int64_t most) {
  std::vector<std::string> out;
  for (int d = 1; d <= std::min<int64_t>(n, most); ++d) {
    if (n % d == 0) out.push_back(std::to_string(d));
  }
  return out;
}

void check_component(const Recipe& recipe, const ComponentSpec& spec, const ComponentLayout& layout, int world,
                     const Declarations& declarations, const std::string& origin) {
  if (layout.sp == 1 && layout.tp == 1) return;
  const ConfigValue& section = section_of(recipe, declarations.component);
  check_layers(section, spec, layout, declarations);
  check_rows(section, layout, world, declarations, origin);
}

void check_machines(const Recipe& recipe, const WorldLayout& layout, int local_world) {
  const ConfigValue* parallel = recipe.tree.find("parallel");
  if (parallel == nullptr || !parallel->is_map() || layout.world == local_world) return;
  if (parallel->get_bool("across_machines")) return;
  const auto check = [&](const std::string& component, const char* key, const char* whose, int ranks) {
    const ConfigValue& section = section_of(recipe, component);
    LOOM_CHECK_USER(local_world % ranks == 0, said_at(section.at(key)), whose, " ", ranks,
                    " ranks, which do not lie within machines of ", local_world,
                    " as parallel.across_machines: false asks; expected one of ",
                    join(divisors(local_world, local_world), ", "));
  };
  const auto check_all = [&, world = layout.world](const char* group,
                                                   const std::map<std::string, ComponentLayout>& layouts) {
    for (const auto& [modality, own] : layouts) {
      const std::string component = concat(group, ".", modality);
      check(component, "tp", "its layers are shared by", own.tp);
      // Items go to whichever ranks have least to do.
      LOOM_CHECK_USER(own.sp == 1, said_at(section_of(recipe, component).at("sp")), "an item may lie on any ", own.sp,
                      " of ", world, " ranks, and machines have ", local_world,
                      "; parallel.across_machines: false asks for 1");
    }
  };
  check_all("encoders", layout.encoders);
  check_all("connectors", layout.connectors);
  check("backbone", layout.backbone.sp > 1 ? "sp" : "tp", "a lane (sp x tp) is", layout.lane_ranks());
}

}  // namespace loom
