#include "pipelines/parallel_section.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/source.h"
#include "pipelines/layout_checks.h"

namespace loom {
namespace {

constexpr double kMostRanks = 1 << 20, kMostMicrobatches = 1 << 20;
constexpr double kLongestWait = 1e6;
constexpr const char* kAllOthers = "*";

void add_shard(Schema& s) {
  s.integer("shard", 0, {0, kMostRanks},
            "ranks that share one copy of the weights; 0 = all, 1 = every rank has a copy");
}

void add_tp(Schema& s) {
  s.integer("tp", 1, {1, kMostRanks},
            "neighbouring ranks that share its layers: heads, hidden columns, rows of the vocabulary");
}

void add_attention(Schema& s) {
  s.choice(
      "attention", "ulysses", {"ulysses", "ring", "mesh"},
      "of rows that several ranks share: each rank some heads of all rows, or its rows and keys that pass by, or a "
      "mesh of both");
  s.integer("mesh_queries", 0, {0, kMostRanks},
            "attention mesh: ranks whose queries a rank works on; 0 = as mesh_choice says");
  s.choice("mesh_choice", "traffic", {"traffic", "measured"},
           "attention mesh: what sends least, or what takes least by times that are measured when the run starts");
}

// See ComponentLayout::tile_queries.
int read_tile(const ConfigValue& section) {
  const std::string& attention = section.get_string("attention");
  const int64_t queries = section.get_int("mesh_queries");
  LOOM_CHECK_USER(queries == 0 || attention == "mesh", said_at(section.at("mesh_queries")),
                  "it belongs to attention: ", "mesh, not to ", attention);
  const bool measured = section.get_string("mesh_choice") == "measured";
  LOOM_CHECK_USER(!measured || (attention == "mesh" && queries == 0), said_at(section.at("mesh_choice")),
                  "measured is for attention: mesh with mesh_queries: 0");
  if (attention == "ulysses") return kByHeads;
  if (attention == "ring") return 1;
  return queries > 0 ? static_cast<int>(queries) : measured ? kLeastTime : kLeastTraffic;
}

std::string ranks_text(int world) { return concat(world, world == 1 ? " rank" : " ranks"); }

// A size that must divide the number of ranks, or of groups of `tp` ranks.
int read_size(const ConfigValue& section, const char* key, int world, const char* words, int tp = 1) {
  const ConfigValue& value = section.at(key);
  const int64_t size = value.as_int();
  const std::string units = tp == 1 ? ranks_text(world) : concat(world / tp, " groups of ", tp, " ranks (tp)");
  LOOM_CHECK_USER(size == 0 || world / tp % size == 0, said_at(value), words, " ", size, ", which does not divide the ",
                  units, " of this run; expected one of ", join(divisors(world / tp, world), ", "));
  return static_cast<int>(size);
}

// What all components have.
void read_weights(const ConfigValue& section, int world, ComponentLayout& layout) {
  layout.tp = read_size(section, "tp", world, "its layers are shared by");
  layout.shard = read_size(section, "shard", world, "the weights are shared by", layout.tp);
}

void read_passes(const ConfigValue& section, ComponentLayout& encoder) {
  encoder.macro = static_cast<int>(section.get_int("macro"));
  encoder.ahead = section.get_bool("ahead");
  encoder.most_rows = section.get_int("most_rows");
}

ConnectorSide read_side(const ConfigValue& section) {
  const std::string& side = section.get_string("side");
  return side == "encoder"    ? ConnectorSide::encoder
         : side == "backbone" ? ConnectorSide::backbone
                              : ConnectorSide::fewer_bytes;
}

BridgeChoice read_bridge(const ConfigValue& section) {
  const std::string& path = section.get_string("path");
  const double threshold = section.get_number("threshold");
  LOOM_CHECK_USER(threshold == 0 || path == "auto", said_at(section.at("threshold")),
                  "it belongs to path: auto, not to ", path);
  if (path == "auto") return {BridgePath::by_traffic, threshold};
  return {path == "symmetric" ? BridgePath::symmetric : BridgePath::exact, 1};
}

std::string attention_text(const ComponentLayout& layout) {
  if (layout.tile_queries == kByHeads) return "";
  return layout.tile_queries == 1  ? " ring"
         : layout.tile_queries < 0 ? " mesh"
                                   : concat(" mesh of ", layout.tile_queries);
}

std::string passes_text(const ComponentLayout& encoder) {
  std::string out;
  if (encoder.macro != 1)
    out = encoder.macro == 0 ? " · one pass a step" : concat(" · a pass serves ", encoder.macro, " microbatches");
  return out + (encoder.ahead ? " · ahead" : "");
}

std::string weights_text(const ComponentLayout& layout, int ranks_of_all) {
  if (layout.tp > 1) {
    ComponentLayout part = layout;
    part.tp = 1;
    return concat("tp ", layout.tp, " · ", weights_text(part, ranks_of_all / layout.tp));
  }
  const int world = ranks_of_all, ranks = layout.shard == 0 ? world : layout.shard;
  if (ranks == world) return concat("shard ", ranks);
  if (ranks == 1) return concat("a copy on each of ", ranks_text(world));
  return concat("shard ", ranks, " x ", world / ranks, " copies");
}

}  // namespace

Schema parallel_schema() {
  Schema encoder, connector, backbone;
  for (Schema* component : {&encoder, &connector, &backbone}) {
    add_shard(*component);
    add_tp(*component);
  }
  encoder.integer("sp", 1, {1, kMostRanks}, "most ranks that share one item");
  encoder.integer("macro", 1, {0, kMostMicrobatches},
                  "microbatches of the backbone that one pass serves, its backward following the last of them; 0 = all "
                  "of a step");
  encoder.integer(
      "most_rows", 0, {0, 1e12},
      "most rows of one item on one rank, for its memory: longer ones are divided, over up to sp ranks, and "
      "refused where that does not suffice; 0 = any number");
  encoder.boolean("ahead", false, "run a pass one microbatch early, so that its embeddings travel behind the backbone");
  connector.choice("side", "fewer_bytes", {"fewer_bytes", "encoder", "backbone"},
                   "where it runs: where its encoder has the features, or where the backbone wants the embeddings");
  add_attention(encoder);
  backbone.integer("sp", 1, {1, kMostRanks}, "ranks of a lane, which share its packed sequence");
  add_attention(backbone);
  Schema balance;
  balance.integer("group", 0, {0, kMostRanks},
                  "neighbouring ranks over which the items of a microbatch are spread; 0 = all, at most 256");
  balance.boolean("move", true, "may a whole item be encoded elsewhere than where its embeddings are wanted?");
  balance.boolean("pack", true, "are samples dealt to lanes by cost? else in turn");
  balance.boolean("split", true, "may long items be divided, over up to sp ranks?");
  Schema s;
  s.map_of("encoders", encoder, "by modality; \"*\": all that are not named");
  s.map_of("connectors", connector, "by modality; \"*\": all that are not named");
  s.section("backbone", backbone, "the language model");
  s.section("balance", balance, "encoders' and the backbone's work over the ranks");
  Schema bridge;
  bridge.choice("path", "exact", {"exact", "symmetric", "auto"},
                "how embeddings reach the backbone: what differs from rank to rank, or equal parts of which every link "
                "carries as much");
  bridge.number("threshold", 0, {0, 1},
                "auto: symmetric where the busiest rank of the exact path sends this share of its bytes; 0 = measured "
                "when the run starts");
  s.section("bridge", bridge, "embeddings on their way to the backbone");
  s.choice(
      "gather", "pass", {"pass", "step"},
      "when shared weights are gathered: for every pass of a unit, or once per step, which holds them all in memory");
  s.choice(
      "reduce", "microbatch", {"microbatch", "step"},
      "when gradients of shared weights are reduced: after each microbatch, or once per step, which holds them whole");
  s.boolean("across_machines", true, "may ranks that share rows or layers (sp, tp) lie on several machines?");
  const WorldOptions usual;
  s.number("timeout", usual.timeout, {1, kLongestWait}, "seconds that a rank waits for another one that is alive");
  s.number("lost_after", usual.patience, {1, kLongestWait},
           "seconds without a sign of life after which a rank counts as lost");
  s.choice("neighbors", "memory", {"memory", "sockets"},
           "how large messages pass between processes of one machine: copied from memory to memory where the system "
           "allows it, or as between machines");
  return s;
}

void check_parallel_names(const ConfigValue& parallel, const std::vector<std::string>& components, Mistakes& mistakes) {
  for (const char* group : {"encoders", "connectors"}) {
    const ConfigValue* sections = parallel.find(group);
    if (sections == nullptr || !sections->is_map()) continue;
    for (const auto& [modality, section] : sections->entries()) {
      const std::string name = concat(group, ".", modality);
      if (modality == kAllOthers) continue;
      if (std::find(components.begin(), components.end(), name) != components.end()) continue;
      mistakes.add(section.where(), section.path,
                   concat("no component ", quote_text(name), did_you_mean(name, components)));
    }
  }
}

const ConfigValue* find_component_section(const ConfigValue& parallel, const char* group, const std::string& modality) {
  const ConfigValue* sections = parallel.find(group);
  if (sections == nullptr || !sections->is_map()) return nullptr;
  const ConfigValue* own = sections->find(modality);
  return own != nullptr ? own : sections->find(kAllOthers);
}

WorldLayout read_layout(const Recipe& recipe, int world) {
  WorldLayout layout;
  layout.world = world;
  const ConfigValue* parallel = recipe.tree.find("parallel");
  if (parallel == nullptr || !parallel->is_map()) return layout;
  for (const auto& [modality, component] : recipe.encoders) {
    if (const ConfigValue* section = find_component_section(*parallel, "encoders", modality)) {
      ComponentLayout& encoder = layout.encoders[modality];
      read_weights(*section, world, encoder);
      encoder.sp = static_cast<int>(std::min<int64_t>(section->get_int("sp"), world));
      encoder.tile_queries = read_tile(*section);
      read_passes(*section, encoder);
    }
    if (const ConfigValue* section = find_component_section(*parallel, "connectors", modality)) {
      read_weights(*section, world, layout.connectors[modality]);
      layout.connectors[modality].side = read_side(*section);
    }
  }
  const ConfigValue& backbone = parallel->at("backbone");
  read_weights(backbone, world, layout.backbone);
  layout.backbone.sp = read_size(backbone, "sp", world, "the ranks of a lane are", layout.backbone.tp);
  layout.backbone.tile_queries = read_tile(backbone);
  const ConfigValue& balance = parallel->at("balance");
  layout.balance.group = read_size(balance, "group", world, "items are spread over groups of");
  LOOM_CHECK_USER(layout.balance.group <= Balance::kMostRanks, said_at(balance.at("group")), layout.balance.group,
                  " ranks; expected at most ", Balance::kMostRanks);
  layout.balance.move = balance.get_bool("move");
  layout.balance.split = balance.get_bool("split");
  layout.balance.pack = balance.get_bool("pack");
  layout.bridge = read_bridge(parallel->at("bridge"));
  return layout;
}

WorldLayout read_passes(const Recipe& recipe) {
  WorldLayout layout;
  const ConfigValue* parallel = recipe.tree.find("parallel");
  for (const auto& [modality, component] : recipe.encoders) {
    const ConfigValue* section =
        parallel == nullptr || !parallel->is_map() ? nullptr : find_component_section(*parallel, "encoders", modality);
    if (section != nullptr) read_passes(*section, layout.encoders[modality]);
  }
  return layout;
}

WorldOptions read_world_options(const Recipe& recipe) {
  WorldOptions options;
  const ConfigValue* parallel = recipe.tree.find("parallel");
  if (parallel == nullptr || !parallel->is_map()) return options;
  options.timeout = parallel->get_number("timeout");
  options.patience = parallel->get_number("lost_after");
  options.share_memory = parallel->get_string("neighbors") == "memory";
  return options;
}

std::vector<std::string> layout_lines(const WorldLayout& layout, const MultimodalModel& model) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const std::string& modality : model.modalities()) {
    const ComponentLayout encoder = layout.encoder(modality), connector = layout.connector(modality);
    std::string items;
    if (encoder.sp > 1 && model.divisible(modality))
      items = concat(" · items over up to ", encoder.sp, " ranks", attention_text(encoder));
    if (encoder.sp > 1 && !model.divisible(modality)) items = concat(" · items stay whole: a unit mixes them as such");
    const std::string lanes = concat(layout.world, " lanes");
    rows.emplace_back("encoders." + modality,
                      concat(lanes, items, " · ", weights_text(encoder, layout.world), passes_text(encoder)));
    rows.emplace_back("connectors." + modality, concat(lanes, " · ", weights_text(connector, layout.world)));
  }
  const std::string sp =
      layout.backbone.sp > 1 ? concat(", sp ", layout.backbone.sp, attention_text(layout.backbone)) : "";
  rows.emplace_back("backbone", concat(layout.lanes(), layout.lanes() == 1 ? " lane" : " lanes", sp, " · ",
                                       weights_text(layout.backbone, layout.world)));
  size_t widest = 0;
  for (const auto& [name, text] : rows) widest = std::max(widest, name.size());
  std::vector<std::string> lines;
  for (const auto& [name, text] : rows) lines.push_back(name + std::string(widest + 2 - name.size(), ' ') + text);
  return lines;
}

}  // namespace loom
