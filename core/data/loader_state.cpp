// JSON, because a checkpoint's manifest is JSON. Seeds and positions are 64-bit integers, which nlohmann-json keeps
// exact.
#include "core/data/loader_state.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

nlohmann::ordered_json json_of(const std::vector<MixSegment>& segments) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const MixSegment& segment : segments) out.push_back({{"position", segment.begin}, {"weights", segment.weights}});
  return out;
}

// Absent in states without any, so in those of older versions.
std::vector<MixSegment> parse_segments(const nlohmann::json& root, const char* key, size_t sources) {
  std::vector<MixSegment> out;
  if (!root.contains(key)) return out;
  for (const nlohmann::json& segment : root.at(key)) {
    out.push_back({segment.at("position").get<uint64_t>(), segment.at("weights").get<std::vector<double>>()});
    const size_t weights = out.back().weights.size();
    LOOM_CHECK_USER(weights == sources || weights == 0, "not a loader state: ", weights, " weights for ", sources,
                    " sources");
  }
  return out;
}

}  // namespace

std::string LoaderState::json() const {
  nlohmann::ordered_json root = {{"position", position}, {"next_step", next_step}, {"seen", seen},
                                 {"skipped", skipped},   {"left_out", left_out},   {"epochs", epochs},
                                 {"seed", seed},         {"shuffle", shuffle}};
  root["sources"] = nlohmann::ordered_json::array();
  for (const OrderSource& source : sources) {
    root["sources"].push_back({{"name", source.name}, {"size", source.size}, {"weight", source.weight}});
  }
  if (!mix.empty()) root["mix"] = json_of(mix);
  if (!changes.empty()) root["changes"] = json_of(changes);
  return root.dump();
}

bool operator==(const LoaderState& a, const LoaderState& b) { return a.json() == b.json(); }

LoaderState parse_loader_state(const std::string& json, const std::string& where) {
  try {
    const nlohmann::json root = nlohmann::json::parse(json);
    LoaderState out;
    out.position = root.at("position").get<uint64_t>();
    out.next_step = root.at("next_step").get<int64_t>();
    out.seen = root.at("seen").get<int64_t>();
    out.skipped = root.at("skipped").get<int64_t>();
    out.left_out = root.at("left_out").get<int64_t>();
    out.epochs = root.at("epochs").get<std::map<std::string, uint64_t>>();
    out.seed = root.at("seed").get<uint64_t>();
    out.shuffle = root.at("shuffle").get<bool>();
    for (const nlohmann::json& source : root.at("sources")) {
      out.sources.push_back(
          {source.at("name").get<std::string>(), source.at("size").get<int64_t>(), source.at("weight").get<double>()});
    }
    out.mix = parse_segments(root, "mix", out.sources.size());
    out.changes = parse_segments(root, "changes", out.sources.size());
    return out;
  } catch (const nlohmann::json::exception& problem) {
    throw UserError(concat(where, ": not a loader state: ", quote_text(problem.what())));
  }
}

void check_same_order(const LoaderState& state, const SampleOrder& order) {
  const std::string advice = "; a run resumes only with the data it was started with";
  const std::vector<OrderSource>& now = order.sources();
  LOOM_CHECK_USER(state.sources.size() == now.size(), "the checkpoint was made with ", state.sources.size(),
                  " data sources, the recipe has ", now.size(), advice);
  for (size_t i = 0; i < now.size(); ++i) {
    const OrderSource& then = state.sources[i];
    LOOM_CHECK_USER(then.name == now[i].name, "the checkpoint's data source ", i, " is ", then.name,
                    ", the recipe's is ", now[i].name, advice);
    LOOM_CHECK_USER(then.size == now[i].size, "data source ", then.name, " had ", then.size,
                    " samples in the checkpoint and has ", now[i].size, " now", advice);
    LOOM_CHECK_USER(then.weight == now[i].weight, "data source ", then.name, " had weight ", then.weight,
                    " in the checkpoint and has ", now[i].weight, " now", advice);
  }
  LOOM_CHECK_USER(state.seed == order.seed(), "the checkpoint's data was shuffled with seed ", state.seed,
                  ", the recipe says ", order.seed(), advice);
  LOOM_CHECK_USER(state.shuffle == order.shuffled(), "data.shuffle was ", state.shuffle ? "true" : "false",
                  " in the checkpoint and is ", order.shuffled() ? "true" : "false", " now", advice);
  LOOM_CHECK_USER(state.mix == order.mix(), "data.mix is not what the checkpoint was made with", advice,
                  "; `omniloom mix RUN NAME=WEIGHT ...` changes the mix of a run");
}

}  // namespace loom
