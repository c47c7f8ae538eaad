#include "pipelines/mix_section.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/source.h"

namespace loom {
namespace {

constexpr double kLargest = 1e15;  // samples
constexpr int64_t kMostWeight = 1'000'000;

// {train.0: 1} is a map in a map.
void add_weights(const ConfigValue& value, const std::string& prefix, const std::vector<std::string>& names,
                 std::vector<double>& weights) {
  for (const auto& [key, child] : value.entries()) {
    const std::string name = prefix.empty() ? key : concat(prefix, ".", key);
    if (child.is_map()) {
      add_weights(child, name, names, weights);
      continue;
    }
    const auto found = std::find(names.begin(), names.end(), name);
    LOOM_CHECK_USER(found != names.end(), said_at(child), "no data source ", quote_text(name),
                    did_you_mean(name, names), " (there is: ", join(names, ", "), ")");
    const bool number = child.kind() == ConfigValue::Kind::integer || child.kind() == ConfigValue::Kind::number;
    LOOM_CHECK_USER(number && child.as_number() >= 0 && child.as_number() <= static_cast<double>(kMostWeight),
                    said_at(child), "expected a weight from 0 to ", kMostWeight, ", found ", child.found());
    weights[static_cast<size_t>(found - names.begin())] = child.as_number();
  }
}

void check_names(const ConfigValue& data, Mistakes& mistakes) {
  std::map<std::string, const ConfigValue*> first;
  for (const char* list : {"train", "eval"}) {
    const ConfigValue* items = data.find(list);
    if (items == nullptr || !items->is_list()) continue;
    for (const ConfigValue& item : items->items()) {
      const ConfigValue* given = item.is_map() ? item.find("name") : nullptr;
      if (given == nullptr || given->kind() != ConfigValue::Kind::string) continue;
      const std::string name = source_name(item);
      const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
      });
      if (!plain)
        mistakes.add(given->mark, given->path,
                     concat("expected letters, digits, '_', '-' and '.', found ", given->found()));
      const auto [known, fresh] = first.try_emplace(name, &item);
      if (!fresh)
        mistakes.add(given->mark, given->path,
                     concat("another source is called ", quote_text(name), " (", known->second->path, ")"));
    }
  }
}

void check_stages(const ConfigValue& data, Mistakes& mistakes) {
  const ConfigValue* stages = data.find("mix");
  if (stages == nullptr || !stages->is_list()) return;
  const std::vector<std::string> names = train_source_names(data);
  int64_t before = 0;
  bool own_weights = stages->items().empty();
  for (size_t i = 0; i < stages->items().size(); ++i) {
    const ConfigValue& stage = stages->items()[i];
    if (!stage.is_map()) return;  // told already
    const bool last = i + 1 == stages->items().size();
    const ConfigValue *until = stage.find("until"), *weights = stage.find("weights"), *ramp = stage.find("ramp");
    const bool has_until = until != nullptr && !until->is_null();
    if (has_until && last)
      mistakes.add(until->mark, until->path, "the last stage has no end; expected another one behind it, or no until");
    if (!has_until && !last)
      mistakes.add(stage.mark, stage.path, "missing until: the number of samples after which the next stage begins");
    if (has_until && until->kind() == ConfigValue::Kind::integer) {
      if (until->as_int() <= before)
        mistakes.add(until->mark, until->path,
                     concat("expected more than ", before, ", where this stage begins, found ", until->found()));
      before = until->as_int();
    }
    const bool ramps = ramp != nullptr && ramp->kind() == ConfigValue::Kind::boolean && ramp->as_bool();
    if (ramps && last) mistakes.add(ramp->mark, ramp->path, "the last stage leads to no other; expected ramp: false");
    if (weights == nullptr || weights->is_null()) {
      own_weights = true;
      if (i > 0 || ramps || last)
        mistakes.add(stage.mark, stage.path,
                     "missing weights, as in {photos: 1, text: 9}; only a first stage may leave "
                     "them out, and is then what the sources say");
      continue;
    }
    try {
      read_weights(*weights, names);
    } catch (const UserError& error) {
      mistakes.add_line(error.what());
    }
  }
  if (own_weights) return;
  for (const ConfigValue& source : data.at("train").items()) {
    const ConfigValue* weight = source.is_map() ? source.find("weight") : nullptr;
    if (weight != nullptr && !weight->is_null())
      mistakes.add(weight->where(), weight->path, "data.mix has weights for every stage; expected one of them");
  }
}

}  // namespace

Schema mix_stage_schema() {
  Schema s;
  s.integer("until", 0, {1, kLargest}, "samples of the run after which the next stage begins; not of the last one")
      .optional();
  s.any("weights", "shares by name of source, as in {photos: 1, text: 9}; a source that is not named is left out");
  s.boolean("ramp", false, "go evenly to the weights of the next stage");
  return s;
}

std::vector<std::string> train_source_names(const ConfigValue& data) {
  std::vector<std::string> out;
  const ConfigValue* items = data.find("train");
  if (items == nullptr || !items->is_list()) return out;
  for (const ConfigValue& item : items->items()) out.push_back(source_name(item));
  return out;
}

void check_mix(const ConfigValue& data, Mistakes& mistakes) {
  check_names(data, mistakes);
  check_stages(data, mistakes);
}

std::vector<double> read_weights(const ConfigValue& value, const std::vector<std::string>& names) {
  LOOM_CHECK_USER(value.is_map(), said_at(value), "expected weights by name of source, as in {",
                  names.empty() ? "photos" : names.front(), ": 1}, found ", value.found());
  std::vector<double> out(names.size(), 0);
  add_weights(value, "", names, out);
  LOOM_CHECK_USER(std::any_of(out.begin(), out.end(), [](double weight) { return weight > 0; }), said_at(value),
                  "expected a weight above 0 for at least one source");
  return out;
}

std::vector<MixSegment> read_mix(const ConfigValue& data) {
  const std::vector<std::string> names = train_source_names(data);
  std::vector<MixStage> stages;
  const ConfigValue* items = data.find("mix");
  if (items == nullptr || !items->is_list()) return {};
  for (const ConfigValue& item : items->items()) {
    MixStage& stage = stages.emplace_back();
    const ConfigValue *until = item.find("until"), *weights = item.find("weights");
    if (until != nullptr && !until->is_null()) stage.until = static_cast<uint64_t>(until->as_int());
    if (weights != nullptr && !weights->is_null()) stage.weights = read_weights(*weights, names);
    stage.ramp = item.get_bool("ramp");
  }
  return mix_segments(stages);
}

std::string mix_text(const std::vector<MixSegment>& mix, const std::vector<std::string>& names) {
  std::vector<std::string> stages;
  for (size_t i = 0; i < mix.size(); ++i) {
    std::vector<std::string> parts;
    if (i + 1 < mix.size()) parts.push_back(concat("until: ", mix[i + 1].begin));
    std::vector<std::string> weights;
    for (size_t s = 0; s < mix[i].weights.size(); ++s) {
      if (mix[i].weights[s] > 0) weights.push_back(concat(names[s], ": ", shortest_double(mix[i].weights[s])));
    }
    if (!weights.empty()) parts.push_back("weights: {" + join(weights, ", ") + "}");
    stages.push_back("{" + join(parts, ", ") + "}");
  }
  return "[" + join(stages, ", ") + "]";
}

std::string shares_text(const std::vector<double>& weights, const std::vector<std::string>& names) {
  if (weights.empty()) return "as the sources say";
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<std::string> parts;
  for (size_t s = 0; s < weights.size(); ++s)
    parts.push_back(concat(names[s], " ", std::round(1000 * weights[s] / sum) / 10, " %"));
  return join(parts, " · ");
}

}  // namespace loom
