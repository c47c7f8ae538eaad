// Six digits of seconds are kept, like in timing.jsonl. Readers take nothing for granted: files are people's, too.
#include "pipelines/rank_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "pipelines/json_lines.h"
#include "pipelines/step_timing.h"

namespace loom {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostWaits = 16;        // of a line
constexpr double kLeastWait = 0.001;     // of the step
constexpr double kBytesPerNumber = 9.5;  // in a line
constexpr double kListsPerComponent = 7;

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", std::isfinite(value) ? value : 0.0);
  return text.data();
}

template <class Value, class Text>
std::string list(const char* name, const std::vector<Value>& values, const Text& text) {
  std::string out;
  for (const Value& value : values) out += (out.empty() ? "" : ",") + text(value);
  return "\"" + std::string(name) + "\":[" + out + "]";
}

std::string seconds(const char* name, const std::vector<double>& values) { return list(name, values, number); }

std::string bytes(const char* name, const std::vector<int64_t>& values) {
  return list(name, values, [](int64_t value) { return std::to_string(value); });
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

template <class Values>
Values of(const std::map<std::string, Values>& all, const std::string& component, size_t world) {
  const auto found = all.find(component);
  return found != all.end() ? found->second : Values(world);
}

// "sent" and what was predicted of it.
std::string wire(const std::string& component, const RankTable& table, const WireForecast& forecast) {
  std::string out = "," + bytes("sent", of(table.sent, component, table.seconds.size()));
  if (!forecast.empty()) out += "," + bytes("sent_predicted", of(forecast, component, table.seconds.size()));
  return out;
}

std::vector<double> doubles(const Json& object, const char* name) {
  std::vector<double> out;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) return out;
  for (const Json& value : *found) out.push_back(value.is_number() ? value.get<double>() : 0);
  return out;
}

void add(std::vector<double>& sum, const std::vector<double>& more) {
  sum.resize(std::max(sum.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

const Json& components_of(const Json& line) {
  static const Json none = Json::object();
  const auto found = line.find("components");
  return found != line.end() && found->is_object() ? *found : none;
}

template <class Ranks, class Visit>
void each_list(Ranks& ranks, const Visit& visit) {
  visit(ranks.items, ranks.component == "backbone" ? "samples" : "items");
  visit(ranks.tokens, "tokens");
  visit(ranks.predicted, "predicted");
  visit(ranks.compute, "compute");
  visit(ranks.communication, "communication");
  visit(ranks.waiting, "waiting");
  visit(ranks.sent, "sent");
}

using WaitKey = std::tuple<int, int, std::string>;

void add_line(const Json& line, MeanRanks& out, std::map<WaitKey, double>& waits) {
  ++out.lines;
  add(out.seconds, doubles(line, "seconds"));
  add(out.compute, doubles(line, "compute"));
  for (const auto& [name, lists] : components_of(line).items()) {
    auto place = std::find_if(out.components.begin(), out.components.end(),
                              [&, &wanted = name](const ComponentRanks& known) { return known.component == wanted; });
    if (place == out.components.end()) {
      out.components.emplace_back().component = name;
      place = out.components.end() - 1;
    }
    each_list(*place, [&, &from = lists](std::vector<double>& sum, const char* key) { add(sum, doubles(from, key)); });
  }
  const auto found = line.find("waits");
  if (found == line.end() || !found->is_array()) return;
  for (const Json& wait : *found) {
    try {
      const WaitKey key{wait.at("rank").get<int>(), wait.at("for").get<int>(), wait.at("component").get<std::string>()};
      waits[key] += wait.at("seconds").get<double>();
    } catch (const Json::exception&) {
      continue;
    }
  }
}

StepAction action_of(const std::string& name) {
  for (int i = static_cast<int>(StepAction::forward); i <= static_cast<int>(StepAction::data); ++i) {
    if (name == step_action_name(static_cast<StepAction>(i))) return static_cast<StepAction>(i);
  }
  return StepAction::data;
}

}  // namespace

std::string ranks_json(int64_t step, const std::map<std::string, std::vector<RankLoad>>& loads, const RankTable& table,
                       const RankWaits& waits, const WireForecast& forecast) {
  const size_t world = table.seconds.size();
  const auto compute = table.compute_by_component(), communication = table.communication_by_component();
  std::string components;
  for (const auto& [component, sent] : table.sent) {
    if (component.empty()) continue;
    const std::vector<RankLoad> load = of(loads, component, world);
    components += components.empty() ? "" : ",";
    components += quoted(component) + ":{" +
                  list(component == "backbone" ? "samples" : "items", load,
                       [](const RankLoad& mine) { return std::to_string(mine.items); }) +
                  "," + list("tokens", load, [](const RankLoad& mine) { return std::to_string(mine.tokens); }) + "," +
                  list("predicted", load, [](const RankLoad& mine) { return number(mine.cost); }) + "," +
                  seconds("compute", of(compute, component, world)) + "," +
                  seconds("communication", of(communication, component, world)) + "," +
                  seconds("waiting", of(waits.within, component, world)) + wire(component, table, forecast) + "}";
  }
  std::string longest;
  for (size_t i = 0; i < std::min(waits.waits.size(), kMostWaits); ++i) {
    const RankWait& wait = waits.waits[i];
    if (wait.seconds < kLeastWait * table.seconds[static_cast<size_t>(wait.rank)]) break;
    longest += longest.empty() ? "" : ",";
    longest += "{\"rank\":" + std::to_string(wait.rank) + ",\"for\":" + std::to_string(wait.behind) +
               ",\"component\":" + quoted(wait.part) + ",\"seconds\":" + number(wait.seconds) + "}";
  }
  return "{\"step\":" + std::to_string(step) + "," + seconds("seconds", table.seconds) + "," +
         seconds("compute", table.compute) + ",\"components\":{" + components + "}" + wire("", table, forecast) +
         ",\"waits\":[" + longest + "]}";
}

int64_t ranks_interval(int64_t steps, int world, size_t components) {
  const double lists = kListsPerComponent * static_cast<double>(components) + 3;
  return line_interval(steps, lists * (kBytesPerNumber * world + 15) + 70 * static_cast<double>(kMostWaits));
}

MeanRanks mean_ranks(const std::string& path, size_t lines) {
  MeanRanks out;
  if (!is_file(path)) return out;
  const std::string text = read_text(path);
  std::vector<Json> read;
  for (const std::string_view line : last_lines(text, lines)) {
    Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && !doubles(json, "seconds").empty()) read.push_back(std::move(json));
  }
  std::map<WaitKey, double> waits;
  for (const Json& line : read) {
    if (doubles(line, "seconds").size() == doubles(read.back(), "seconds").size()) add_line(line, out, waits);
  }
  if (out.lines == 0) return out;
  const double share = 1 / static_cast<double>(out.lines);
  const auto scale = [&](std::vector<double>& values) {
    for (double& value : values) value *= share;
  };
  scale(out.seconds);
  scale(out.compute);
  for (ComponentRanks& component : out.components) {
    each_list(component, [&](std::vector<double>& values, const char*) {
      values.resize(out.seconds.size());
      scale(values);
    });
  }
  for (const auto& [key, sum] : waits)
    out.waits.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), sum * share});
  std::stable_sort(out.waits.begin(), out.waits.end(),
                   [](const RankWait& a, const RankWait& b) { return a.seconds > b.seconds; });
  return out;
}

WireCheck wire_check(const std::string& path) {
  WireCheck out;
  if (!is_file(path)) return out;
  const std::string text = read_text(path);
  const size_t mark = text.rfind("\"sent_predicted\"");
  if (mark == std::string::npos) return out;
  const size_t begin = text.rfind('\n', mark) + 1;  // 0 for the first line
  const Json line = Json::parse(text.substr(begin, text.find('\n', mark) - begin), nullptr, false);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return out;
  out.step = line["step"].get<int64_t>();
  const auto read = [&](const std::string& component, const Json& lists) {
    const std::vector<double> predicted = doubles(lists, "sent_predicted"), sent = doubles(lists, "sent");
    if (predicted.empty() || predicted.size() != sent.size()) return;
    for (size_t rank = 0; rank < sent.size(); ++rank) {
      out.predicted[component].push_back(static_cast<int64_t>(predicted[rank]));
      out.sent[component].push_back(static_cast<int64_t>(sent[rank]));
    }
  };
  read("", line);
  for (const auto& [component, lists] : components_of(line).items()) read(component, lists);
  return out;
}

std::string timeline_json(int64_t step, const RankTimeline& timeline) {
  std::string ranks;
  for (const std::vector<StepBar>& rank : timeline.ranks) {
    std::string bars;
    for (const StepBar& bar : rank) {
      bars += std::string(bars.empty() ? "" : ",") + "{\"component\":" + quoted(bar.component) + ",\"action\":\"" +
              step_action_name(bar.action) + "\",\"begin\":" + number(bar.begin) + ",\"end\":" + number(bar.end) +
              (bar.communication ? ",\"communication\":true}" : "}");
    }
    ranks += (ranks.empty() ? "[" : ",\n[") + bars + "]";
  }
  return "{\"step\":" + std::to_string(step) + ",\"ranks\":[" + ranks + "]}\n";
}

std::optional<ReadTimeline> read_timeline(const std::string& path) {
  if (!is_file(path)) return std::nullopt;
  const Json json = Json::parse(read_text(path), nullptr, false);
  if (!json.is_object() || !json.contains("ranks") || !json["ranks"].is_array()) return std::nullopt;
  ReadTimeline out;
  try {
    out.step = json.value("step", int64_t{0});
    for (const Json& rank : json["ranks"]) {
      std::vector<StepBar>& bars = out.timeline.ranks.emplace_back();
      for (const Json& bar : rank) {
        bars.push_back({action_of(bar.value("action", "")), bar.value("component", ""),
                        bar.value("communication", false), bar.value("begin", 0.0), bar.value("end", 0.0)});
      }
    }
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return out;
}

}  // namespace loom
