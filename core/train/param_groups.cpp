// Reading, resolving and complaining. A rule that matches nothing is a mistake, never silence: a misspelt pattern would
// otherwise train a component at the wrong rate for days.
#include "core/train/param_groups.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

// YAML's dotted keys arrive as nested maps; a number ends a prefix.
void flatten_factors(const ConfigValue& value, const std::string& prefix, std::vector<LrFactor>& out) {
  if (!value.is_map()) {
    const double factor = value.as_number();
    LOOM_CHECK_USER(factor >= 0, value.mark.str(), ": ", value.path, ": expected a factor of at least 0, found ",
                    value.text());
    out.push_back({prefix, factor, value.mark, value.path});
    return;
  }
  for (const ConfigValue::Entry& entry : value.entries()) {
    flatten_factors(entry.second, prefix.empty() ? entry.first : prefix + "." + entry.first, out);
  }
}

std::optional<double> optional_number(const ConfigValue& map, std::string_view key) {
  const ConfigValue* value = map.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return value->as_number();
}

bool has_prefix(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '.');
}

// Every dotted prefix of every name, the names themselves last: what a pattern may have meant.
std::vector<std::string> name_candidates(const std::vector<UnitBuffer*>& buffers) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const UnitBuffer* buffer : buffers) {
    for (const BufferEntry& param : buffer->params()) {
      for (size_t dot = param.name.find('.'); dot != std::string::npos; dot = param.name.find('.', dot + 1)) {
        if (seen.insert(param.name.substr(0, dot)).second) names.push_back(param.name.substr(0, dot));
      }
      if (seen.insert(param.name).second) names.push_back(param.name);
    }
  }
  return names;
}

[[noreturn]] void no_match(const Mark& mark, const std::string& path, const std::string& pattern,
                           const std::vector<UnitBuffer*>& buffers) {
  // The nearest name to what stands before the pattern's closing stars, with them put back.
  const size_t stem_end = pattern.find_last_not_of(".*");
  const std::string stem = stem_end == std::string::npos ? pattern : pattern.substr(0, stem_end + 1);
  std::vector<std::string> candidates = name_candidates(buffers);
  for (std::string& name : candidates) name += pattern.substr(stem.size());
  std::string hint = did_you_mean(pattern, candidates);
  if (hint.empty()) {
    std::set<std::string> components;
    for (const UnitBuffer* buffer : buffers) {
      for (const BufferEntry& param : buffer->params()) components.insert(component_of(param.name));
    }
    hint = "; components are " + join({components.begin(), components.end()}, ", ");
  }
  throw UserError(concat(mark.str(), ": ", path, ": no parameter matches ", quote_text(pattern), hint));
}

}  // namespace

std::string component_of(const std::string& full_name) {
  const size_t first = full_name.find('.');
  if (first == std::string::npos) return full_name;
  std::string head = full_name.substr(0, first);
  if (head != "encoders" && head != "connectors") return head;
  return full_name.substr(0, full_name.find('.', first + 1));
}

void add_param_group_fields(Schema& train) {
  Schema group;
  group.string("match", "", "glob over full parameter names").required();
  group.number("lr_factor", 1, {0, 1e6}, "learning rate of these parameters, relative to train.lr").optional();
  group.number("weight_decay", 0, {0, 1e3}, "weight decay of these parameters, vectors included").optional();
  train.number("weight_decay", 0.01, {0, 1e3}, "decoupled weight decay of matrices; vectors get none");
  train.any("lr_factor", "learning rate per component, relative to lr: {connectors.image: 5}").optional();
  train.list_of("groups", std::move(group), "settings by parameter name; per setting the last match wins");
}

ParamGroups read_param_groups(const ConfigValue& train) {
  ParamGroups groups;
  groups.weight_decay = train.get_number("weight_decay");
  if (const ConfigValue* factors = train.find("lr_factor"); factors != nullptr && !factors->is_null()) {
    LOOM_CHECK_USER(factors->is_map(), factors->mark.str(), ": ", factors->path,
                    ": expected a map from component to factor, found ", factors->kind_name());
    flatten_factors(*factors, "", groups.factors);
  }
  if (const ConfigValue* rules = train.find("groups"); rules != nullptr && !rules->is_null()) {
    for (const ConfigValue& rule : rules->items()) {
      const ConfigValue& match = rule.at("match");
      groups.rules.push_back({match.as_string(), optional_number(rule, "lr_factor"),
                              optional_number(rule, "weight_decay"), match.mark, match.path});
    }
  }
  return groups;
}

std::vector<std::vector<EntrySettings>> resolve_param_groups(const ParamGroups& groups,
                                                             const std::vector<UnitBuffer*>& buffers) {
  std::vector<std::vector<EntrySettings>> settings(buffers.size());
  std::vector<bool> factor_used(groups.factors.size()), rule_used(groups.rules.size());
  for (size_t b = 0; b < buffers.size(); ++b) {
    std::map<std::string, EntrySettings> of;  // whole parameters: what matches must not depend on what this rank holds
    for (const BufferEntry& param : buffers[b]->params()) {
      EntrySettings s{1, param.decay ? groups.weight_decay : 0};
      size_t longest = 0;
      for (size_t f = 0; f < groups.factors.size(); ++f) {
        const LrFactor& factor = groups.factors[f];
        if (!has_prefix(param.name, factor.prefix)) continue;
        factor_used[f] = true;
        if (factor.prefix.size() >= longest) s.lr_factor = factor.factor;
        longest = std::max(longest, factor.prefix.size());
      }
      for (size_t r = 0; r < groups.rules.size(); ++r) {
        const GroupRule& rule = groups.rules[r];
        if (!glob_match(rule.match, param.name)) continue;
        rule_used[r] = true;
        s.lr_factor = rule.lr_factor.value_or(s.lr_factor);
        s.weight_decay = rule.weight_decay.value_or(s.weight_decay);
      }
      of.emplace(param.name, s);
    }
    for (const BufferEntry& entry : buffers[b]->entries()) settings[b].push_back(of.at(entry.name));
  }
  for (size_t f = 0; f < factor_used.size(); ++f) {
    if (!factor_used[f]) no_match(groups.factors[f].mark, groups.factors[f].path, groups.factors[f].prefix, buffers);
  }
  for (size_t r = 0; r < rule_used.size(); ++r) {
    if (!rule_used[r]) no_match(groups.rules[r].mark, groups.rules[r].path, groups.rules[r].match, buffers);
  }
  return settings;
}

}  // namespace loom
