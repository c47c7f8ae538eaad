#include "pipelines/plan_world_table.h"

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/text.h"
#include "pipelines/plan_json.h"

namespace loom {
namespace {

using WorldJson = nlohmann::ordered_json;

// "all-gather", "all-reduce over copies".
std::string site_words(const CommSite& site) {
  std::string kind = comm_kind_name(site.kind);
  std::replace(kind.begin(), kind.end(), '_', '-');
  switch (site.axis) {
    case CommAxis::shard:
      return kind;
    case CommAxis::replicate:
      return kind + " over copies";
    case CommAxis::sp:
      return "sp " + kind;
    case CommAxis::tp:
      return "tp " + kind;
    case CommAxis::bridge:
      return "bridge " + kind;
    case CommAxis::world:
      return kind + " over all ranks";
  }
  return kind;
}

// Bytes by words, the largest first.
template <class Belongs>
std::string wire_text(const Traffic& traffic, const Belongs& belongs) {
  std::vector<std::pair<std::string, int64_t>> sums;
  for (const auto& [site, count] : traffic) {
    if (!belongs(site) || count.bytes == 0) continue;
    const std::string words = site_words(site);
    const auto found = std::find_if(sums.begin(), sums.end(), [&](const auto& sum) { return sum.first == words; });
    (found != sums.end() ? *found : sums.emplace_back(words, 0)).second += count.bytes;
  }
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> out;
  for (const auto& [words, bytes] : sums) out.push_back(bytes_text(bytes) + " " + words);
  return out.empty() ? "-" : join(out, ", ");
}

bool belongs_to(const CommSite& site, const std::string& component) {
  return site.component == component && site.axis != CommAxis::bridge;
}

bool of_bridge(const CommSite& site) { return site.axis == CommAxis::bridge; }

std::string ranks_text(const WorldPlan& world) {
  std::vector<std::string> names;
  for (const RankFigures& rank : world.ranks) names.push_back(std::to_string(rank.rank));
  return join(names, ", ");
}

Table world_table(const WorldPlan& world) {
  const auto count = [](int64_t n) { return n == 0 ? std::string("-") : human_count(static_cast<double>(n)); };
  Table table{{"component", "params", "layout", "weights", "gradients", "optimizer", "activations", "wire per step"}};
  const TrainingPlan& plan = world.plan;
  for (const PlanRow& row : plan.rows) {
    const bool last = &row == &plan.rows.back();
    const auto belongs = [&](const CommSite& site) { return last ? of_bridge(site) : belongs_to(site, row.component); };
    table.push_back({row.component, count(row.params), last ? "-" : row.layout, bytes_text(row.weights),
                     bytes_text(row.gradients), bytes_text(row.optimizer), bytes_text(row.activations),
                     wire_text(world.traffic, belongs)});
  }
  return table;
}

}  // namespace

std::string bytes_text(int64_t bytes) { return bytes == 0 ? "-" : human_bytes(static_cast<double>(bytes)); }

std::string flops_text(double flops) {
  if (flops == 0) return "-";
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  for (; flops >= 999.95 && unit + 1 < std::size(kUnits); ++unit) flops /= 1000;
  char number[32];
  std::snprintf(number, sizeof number, "%.*f", flops < 9.995 && unit > 0 ? 2 : 1, flops);
  return concat(number, " ", kUnits[unit], "FLOP");
}

void print_table(const Table& table, const std::set<size_t>& words) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], utf8_columns(row[c]));
  }
  for (const auto& row : table) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string blank(widths[c] - utf8_columns(row[c]), ' ');
      const bool left = c == 0 || words.count(c) != 0;
      if (c > 0) line += "  ";
      line += left ? row[c] + blank : blank + row[c];
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    std::printf("%s\n", line.c_str());
  }
}

void print_snapshot(const TrainingPlan& plan) {
  if (plan.snapshot > 0)
    std::printf("saving  %s more of host memory for the copy that is written (checkpoint.async=false: none)\n",
                bytes_text(plan.snapshot).c_str());
}

std::string peak_parts(const TrainingPlan& plan) {
  std::vector<std::string> parts;
  const auto part = [&](const char* name, int64_t bytes) {
    if (bytes > 0) parts.push_back(concat(name, " ", human_bytes(static_cast<double>(bytes))));
  };
  part("weights", plan.weights);
  part("gathered weights", plan.gathered);
  part("gradients", plan.gradients);
  part("optimizer", plan.optimizer);
  part("kept activations", plan.kept);
  part("transient", plan.transient);
  part("batch", plan.batch_bytes);
  part("tables", plan.tables);
  return join(parts, ", ");
}

void add_knob(const TrainingPlan& plan, const std::string& setting, const std::optional<int64_t>& peak,
              std::vector<std::string>& knobs) {
  if (!peak.has_value() || *peak >= plan.peak) return;
  knobs.push_back(concat(setting, " -> ", human_bytes(static_cast<double>(*peak)), " (saves ",
                         human_bytes(static_cast<double>(plan.peak - *peak)), ")"));
}

void print_units(const TrainingPlan& plan, const std::string& title) {
  Table table{{"unit", "count", "forward", "attention", "backward", "attention", "again"}};
  for (const PlanUnits& u : plan.units) {
    if (u.component.empty()) continue;
    table.push_back({u.component + "." + u.units, std::to_string(u.count), flops_text(u.forward.model()),
                     flops_text(u.forward.attention), flops_text(u.backward.model()), flops_text(u.backward.attention),
                     flops_text(u.forward.again + u.backward.again)});
  }
  std::printf("\n%s\n", title.c_str());
  print_table(table);
}

void print_world_plan(const Job& job, const WorldPlan& world) {
  const TrainingPlan& plan = world.plan;
  std::printf("%s · %d ranks · %s · recompute %s\n", job.recipe.name().c_str(), world.layout.world,
              job.recipe.train().get_string("precision").c_str(),
              job.recipe.train().get_bool("recompute") ? "on" : "off");
  std::printf("batch   %s: %s tokens in %s sample%s per step, %s microbatch%s of up to %s tokens per lane\n",
              world.batch.c_str(), with_commas(world.tokens).c_str(), with_commas(world.samples).c_str(),
              world.samples == 1 ? "" : "s", with_commas(world.microbatches).c_str(),
              world.microbatches == 1 ? "" : "es", with_commas(world.budget).c_str());
  if (world.synthetic)
    std::printf("note    the batch is invented; other lengths and items of the data change the plan\n");
  std::printf("\n");
  print_table(world_table(world), {2, 7});
  std::printf("\nlargest rank %d%s: %s in the %s: %s\n", world.largest,
              world.complete ? "" : concat(" (of ", ranks_text(world), ", which have most work)").c_str(),
              human_bytes(static_cast<double>(plan.peak)).c_str(), plan.peak_at.c_str(), peak_parts(plan).c_str());
  print_snapshot(plan);
  std::printf("wire    %s per step from this rank: %s\n", bytes_text(world.sent()).c_str(),
              wire_text(world.traffic, [](const CommSite&) { return true; }).c_str());
  std::printf("work    %s per rank and step; %s done\n", flops_text(plan.step.model()).c_str(),
              flops_text(plan.step.hardware()).c_str());
  std::vector<std::string> knobs;
  add_knob(plan, "train.recompute=true", plan.recomputed_peak, knobs);
  if (!knobs.empty()) std::printf("lower   %s\n", join(knobs, " · ").c_str());
  std::printf("limits  %s\n", join(world.limits, "; ").c_str());
}

std::string world_plan_json(const Job& job, const WorldPlan& world) {
  const TrainingPlan& plan = world.plan;
  WorldJson out{{"name", job.recipe.name()}, {"world", world.layout.world}};
  out["batch"] = {{"from", world.batch},      {"synthetic", world.synthetic},       {"tokens", world.tokens},
                  {"samples", world.samples}, {"microbatches", world.microbatches}, {"budget", world.budget}};
  const auto wire = [&](const auto& belongs) {
    WorldJson sites = WorldJson::array();
    for (const auto& [site, count] : world.traffic) {
      if (belongs(site))
        sites.push_back({{"component", site.component},
                         {"axis", comm_axis_name(site.axis)},
                         {"kind", comm_kind_name(site.kind)},
                         {"calls", count.calls},
                         {"bytes", count.bytes}});
    }
    return sites;
  };
  for (const PlanRow& row : plan.rows) {
    const bool last = &row == &plan.rows.back();
    const auto belongs = [&](const CommSite& site) { return last ? of_bridge(site) : belongs_to(site, row.component); };
    WorldJson cells = row_json(row);
    cells["wire"] = wire(belongs);
    out["rows"].push_back(std::move(cells));
  }
  out["peak"] = {{"rank", world.largest}};
  out["peak"].update(peak_json(plan));
  out["wire"] = {{"bytes", world.sent()}, {"sites", wire([](const CommSite&) { return true; })}};
  out["flops"] = {{"model", plan.step.model()}, {"hardware", plan.step.hardware()}};
  if (plan.recomputed_peak.has_value()) out["with_recompute"] = *plan.recomputed_peak;
  for (const RankFigures& rank : world.ranks)
    out["ranks"].push_back({{"rank", rank.rank}, {"peak", rank.peak}, {"wire", rank.sent}, {"flops", rank.flops}});
  out["all_ranks_run"] = world.complete;
  out["limits"] = world.limits;
  return out.dump(2);
}

}  // namespace loom
