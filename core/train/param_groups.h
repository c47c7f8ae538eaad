#pragma once
// Optimizer settings of single parameters: a factor per component or subtree (train.lr_factor) and rules by glob over
// full names (train.groups). They are resolved once, into numbers per buffer entry; the optimizer never looks at a
// name.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/parallel/unit_buffer.h"

namespace loom {

// train.groups: [{match: "encoders.image.*", lr_factor: 0.5, weight_decay: 0}]
struct GroupRule {
  std::string match;  // glob over full parameter names
  std::optional<double> lr_factor, weight_decay;
  Mark mark;
  std::string path;
};

// train.lr_factor: {connectors.image: 5}; the name may be any dotted prefix of parameter names ("encoders",
// "backbone.blocks.0").
struct LrFactor {
  std::string prefix;
  double factor = 1;
  Mark mark;
  std::string path;
};

struct ParamGroups {
  double weight_decay = 0;  // of matrices; vectors (BufferEntry::decay false) get none unless a rule says so
  std::vector<LrFactor> factors;
  std::vector<GroupRule> rules;
};

struct EntrySettings {
  double lr_factor = 1;
  double weight_decay = 0;
  bool operator==(const EntrySettings&) const = default;
};

// Fields of the recipe's `train` section: weight_decay, lr_factor, groups.
void add_param_group_fields(Schema& train);
// From a validated `train` section.
ParamGroups read_param_groups(const ConfigValue& train);
// One list per buffer, in the order of its entries. Per setting the last rule that matches and states it wins;
// lr_factor without a rule is that of the longest matching prefix. UserError when a pattern or prefix matches no
// parameter at all.
std::vector<std::vector<EntrySettings>> resolve_param_groups(const ParamGroups& groups,
                                                             const std::vector<UnitBuffer*>& buffers);

// "encoders.image" of "encoders.image.blocks.0.norm.weight"; "backbone" of "backbone.embed.weight".
std::string component_of(const std::string& full_name);

}  // namespace loom
