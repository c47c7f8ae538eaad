// Least squares over the dry runs, of least norm where features move together: what is asked later moves together in
// the same way. Whether a microbatch has items at all is a feature of its own, since a frozen backbone has a backward
// only then.
#include "pipelines/step_cost.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/data/batch_builder.h"
#include "core/nn/varlen_attention.h"
#include "core/parallel/memory_meter.h"
#include "pipelines/build_model.h"
#include "pipelines/plan_batch.h"

namespace loom {
namespace {

enum class Role { encoder = 1, connector, backbone };
constexpr size_t kExamples = 3;  // items of a modality that are measured

const Verdict& verdict_of(const StepPlan& plan, int64_t sample) { return plan.samples.at(static_cast<size_t>(sample)); }

const ItemPlace& place_of(const StepPlan& plan, const PlacedItem& item) {
  return verdict_of(plan, item.sample).items.at(static_cast<size_t>(item.item));
}

bool has_items(const MicrobatchPlan& microbatch) {
  return std::any_of(microbatch.items.begin(), microbatch.items.end(), [](const auto& m) { return !m.second.empty(); });
}

double cells(int64_t queries, int64_t keys, const AttentionSpec& spec) {
  return attention_cells({{0, queries, 0, keys}}, spec.causal, spec.window) *
         static_cast<double>(spec.heads * spec.head_dim);
}

std::vector<ItemPlace> examples_of(const Job& job, const StepPlan& plan, const std::string& modality) {
  std::vector<ItemPlace> out;
  for (const Verdict& verdict : plan.samples) {
    for (const ItemPlace& place : verdict.items) {
      const auto same = [&](const ItemPlace& other) {
        return other.meta.tokens == place.meta.tokens && other.meta.outputs == place.meta.outputs;
      };
      if (place.modality != modality || out.size() >= kExamples) continue;
      if (std::none_of(out.begin(), out.end(), same)) out.push_back(place);
    }
  }
  if (!out.empty()) return out;
  const std::optional<ItemPlace> guess = guess_item(job, modality);
  if (guess.has_value()) out.push_back(*guess);
  return out;
}

// x with rows * x = values, of least norm.
std::vector<double> solve(const std::vector<std::vector<double>>& rows, const std::vector<double>& values) {
  const auto m = static_cast<int64_t>(rows.size()), n = static_cast<int64_t>(rows.front().size());
  const Tensor a = at::empty({m, n}, at::kDouble), b = at::empty({m, 1}, at::kDouble);
  for (int64_t i = 0; i < m; ++i) {
    std::copy(rows[static_cast<size_t>(i)].begin(), rows[static_cast<size_t>(i)].end(),
              a.mutable_data_ptr<double>() + i * n);
    b.mutable_data_ptr<double>()[i] = values[static_cast<size_t>(i)];
  }
  const Tensor scale = a.abs().amax(0).clamp_min(1);
  const Tensor x = at::linalg_pinv(a / scale, 1e-9).mm(b).squeeze(1) / scale;
  return {x.const_data_ptr<double>(), x.const_data_ptr<double>() + n};
}

}  // namespace

struct StepCost::Part {
  struct Unit {
    std::string name;
    std::vector<double> products;  // factors of the part's features
    double attention = 0;          // share of the part's
  };
  std::vector<Unit> units;
  Role role = Role::backbone;
  std::string name, modality;
  std::vector<AttentionSpec> attention;  // calls of one forward
  std::vector<double> products, again;   // factors of features
  // Attention of a step over that of its forward, without and with items in the microbatch.
  std::array<double, 2> attention_factor{0, 0}, attention_again{0, 0};
  mutable std::map<std::vector<int64_t>, double> known;  // forward attention of items, by their meta
};

StepCost::~StepCost() = default;

StepCost::StepCost(const Job& job, const StepPlan& example) {
  install_memory_meter();
  model_ = build_model(job.recipe, job.tokenizer->vocab_size(), *job.plugins, {.device = c10::Device(at::kMeta)});
  for (const std::string& modality : model_->modalities()) {
    for (const Role role : {Role::encoder, Role::connector}) {
      Part& part = parts_.emplace_back();
      part.role = role;
      part.modality = modality;
      part.name = (role == Role::encoder ? "encoders." : "connectors.") + modality;
    }
  }
  parts_.emplace_back().name = "backbone";
  calibrate(job, example);
}

std::vector<double> StepCost::features(const Part& part, const StepPlan& plan, const MicrobatchPlan& microbatch) const {
  double rows = 0, outputs = 0, slots = 0, streamed = 0;
  for (const auto& [modality, items] : microbatch.items) {
    for (const PlacedItem& item : items) {
      const ItemPlace& place = place_of(plan, item);
      if (place.begin < 0) streamed += static_cast<double>(place.slots);
      if (modality != part.modality) continue;
      rows += static_cast<double>(place.meta.tokens);
      outputs += static_cast<double>(place.meta.outputs);
      slots += static_cast<double>(place.slots);
    }
  }
  if (part.role == Role::encoder) return {rows, outputs};
  if (part.role == Role::connector) return {outputs, slots};
  double tokens = 0, supervised = 0;
  for (const PlacedSample& placed : microbatch.samples) {
    tokens += static_cast<double>(verdict_of(plan, placed.sample).tokens);
    supervised += static_cast<double>(verdict_of(plan, placed.sample).supervised);
  }
  const double with = has_items(microbatch) ? 1 : 0;
  return {tokens, supervised, tokens * with, supervised * with, streamed};
}

double StepCost::item_attention(const Part& part, const ItemPlace& place) const {
  std::vector<int64_t> key{place.meta.tokens, place.meta.outputs, place.slots};
  key.insert(key.end(), place.meta.grid.begin(), place.meta.grid.end());
  if (const auto known = part.known.find(key); known != part.known.end()) return known->second;
  ItemLayout layout;
  if (part.role == Role::encoder) {
    layout = model_->encoder(part.modality).layout(place.meta);
  } else {
    layout = whole_item(place.meta.outputs);
    layout.partitions["slots"] = whole_item(place.slots).partitions.begin()->second;
  }
  double sum = 0;
  for (const AttentionSpec& spec : part.attention) {
    const auto queries = layout.partitions.find(spec.partition);
    const auto keys = spec.kv_partition == "=" ? queries : layout.partitions.find(spec.kv_partition);
    if (queries == layout.partitions.end() || keys == layout.partitions.end()) continue;
    for (size_t s = 0; s < std::min(queries->second.lengths.size(), keys->second.lengths.size()); ++s)
      sum += 4 * cells(queries->second.lengths[s], keys->second.lengths[s], spec);
  }
  return part.known[key] = sum;
}

double StepCost::forward_attention(const Part& part, const StepPlan& plan, const MicrobatchPlan& microbatch) const {
  double sum = 0;
  if (part.role != Role::backbone) {
    const auto items = microbatch.items.find(part.modality);
    if (items == microbatch.items.end() || part.attention.empty()) return 0;
    for (const PlacedItem& item : items->second) sum += item_attention(part, place_of(plan, item));
    return sum;
  }
  for (const PlacedSample& placed : microbatch.samples) {
    const Verdict& verdict = verdict_of(plan, placed.sample);
    const auto rows_of = [&](const std::string& partition) {
      if (partition.empty()) return verdict.tokens;
      int64_t rows = 0;
      for (const ItemPlace& place : verdict.items)
        rows += model_->bridge_stream(place.modality) == partition ? place.slots : 0;
      return rows;
    };
    for (const AttentionSpec& spec : part.attention) {
      const int64_t queries = rows_of(spec.partition);
      sum += 4 * cells(queries, spec.kv_partition == "=" ? queries : rows_of(spec.kv_partition), spec);
    }
  }
  return sum;
}

void StepCost::calibrate(const Job& job, const StepPlan& example) {
  std::vector<std::vector<PreparedSample>> runs;
  runs.push_back({plan_sample(job, {}, 24, 12)});
  runs.push_back({plan_sample(job, {}, 47, 8)});
  for (const std::string& modality : model_->modalities()) {
    const std::vector<ItemPlace> items = examples_of(job, example, modality);
    for (size_t i = 0; i < items.size(); ++i) {
      const int64_t more = static_cast<int64_t>(i);
      runs.push_back({plan_sample(job, {items[i]}, 20 + 5 * more, 9)});
      runs.push_back({plan_sample(job, {items[i], items[(i + 1) % items.size()]}, 26, 20 - 3 * more)});
      runs.push_back({plan_sample(job, {items[i]}, 33, 31), plan_sample(job, {}, 40, 2 + more)});
    }
  }
  std::vector<std::vector<std::vector<double>>> rows(parts_.size());
  std::vector<std::vector<double>> products(parts_.size()), again(parts_.size());
  std::vector<std::vector<UnitWork>> seen;
  for (const std::vector<PreparedSample>& samples : runs) {
    std::vector<const PreparedSample*> pointers;
    std::vector<Verdict> verdicts;
    int64_t tokens = 0;
    for (const PreparedSample& sample : samples) {
      pointers.push_back(&sample);
      verdicts.push_back(sample.verdict);
      tokens += sample.verdict.tokens;
    }
    const StepPlan plan = make_step_plan(1, std::move(verdicts), tokens, 0);
    const MicrobatchPlan& microbatch = plan.microbatches.front();
    StepMeter meter(*model_);
    model_->forward_backward(to_device(build_batch(pointers, batch_modalities(*model_)), model_->device()), 1, {});
    const size_t with = has_items(microbatch) ? 1 : 0;
    seen.push_back(meter.units());
    std::map<std::string, Operations> measured = meter.components();
    for (size_t p = 0; p < parts_.size(); ++p) {
      Part& part = parts_[p];
      double attention_again = 0;
      for (const UnitWork& unit : meter.units()) {
        if (unit.component != part.name) continue;
        if (unit.backward.attention > 0) attention_again += unit.backward.attention / 4;  // one product in four
      }
      if (part.attention.empty()) {
        for (const UnitWork& unit : meter.units()) {
          if (unit.component == part.name)
            part.attention.insert(part.attention.end(), unit.attention.begin(), unit.attention.end());
        }
      }
      const Operations& found = measured[part.name];
      rows[p].push_back(features(part, plan, microbatch));
      products[p].push_back(found.products);
      again[p].push_back(found.again - attention_again);
      const double forward = forward_attention(part, plan, microbatch);
      if (forward <= 0) continue;
      part.attention_factor[with] = found.attention / forward;
      part.attention_again[with] = attention_again / forward;
    }
  }
  for (size_t p = 0; p < parts_.size(); ++p) {
    parts_[p].products = solve(rows[p], products[p]);
    parts_[p].again = solve(rows[p], again[p]);
  }
  share_out(seen, rows);
}

// What each unit of a part did in the dry runs, as factors of the same features.
void StepCost::share_out(const std::vector<std::vector<UnitWork>>& runs,
                         const std::vector<std::vector<std::vector<double>>>& rows) {
  for (size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    std::map<std::string, std::vector<double>> products;
    std::map<std::string, double> attention;
    double all = 0;
    for (size_t run = 0; run < runs.size(); ++run) {
      for (const UnitWork& work : runs[run]) {
        if (work.component != part.name) continue;
        std::vector<double>& values = products[work.unit];
        values.resize(runs.size(), 0);
        values[run] = work.forward.products + work.backward.products;
        const double pairs = work.forward.attention + work.backward.attention;
        attention[work.unit] += pairs;
        all += pairs;
      }
    }
    for (const auto& [name, values] : products)
      part.units.push_back({name, solve(rows[p], values), all > 0 ? attention[name] / all : 0});
  }
}

std::map<std::string, double> StepCost::units(const StepPlan& plan) const {
  std::map<std::string, double> out;
  for (const Part& part : parts_) {
    for (const MicrobatchPlan& microbatch : plan.microbatches) {
      const std::vector<double> x = features(part, plan, microbatch);
      const double attention =
          part.attention_factor[has_items(microbatch) ? 1 : 0] * forward_attention(part, plan, microbatch);
      for (const Part::Unit& unit : part.units) {
        double& sum = out[part.name + "." + unit.name];
        for (size_t i = 0; i < x.size(); ++i) sum += unit.products[i] * x[i];
        sum += unit.attention * attention;
      }
    }
  }
  return out;
}

std::map<std::string, Operations> StepCost::components(const StepPlan& plan) const {
  std::map<std::string, Operations> out;
  for (const Part& part : parts_) {
    Operations& sum = out[part.name];
    for (const MicrobatchPlan& microbatch : plan.microbatches) {
      const std::vector<double> x = features(part, plan, microbatch);
      for (size_t i = 0; i < x.size(); ++i) {
        sum.products += part.products[i] * x[i];
        sum.again += part.again[i] * x[i];
      }
      const size_t with = has_items(microbatch) ? 1 : 0;
      const double forward = forward_attention(part, plan, microbatch);
      sum.attention += part.attention_factor[with] * forward;
      sum.again += part.attention_again[with] * forward;
    }
  }
  return out;
}

double StepCost::flops(const StepPlan& plan) const {
  double sum = 0;
  for (const auto& [name, operations] : components(plan)) sum += operations.model();
  return sum;
}

std::unique_ptr<StepCost> try_step_cost(const Job& job, const StepPlan& example) {
  std::string why;
  try {
    return std::make_unique<StepCost>(job, example);
  } catch (const Error& error) {
    why = error.what();
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  }
  log_info("no GFLOP/s: ", why.substr(0, why.find('\n')));
  return nullptr;
}

double StepCost::hardware_flops(const StepPlan& plan) const {
  double sum = 0;
  for (const auto& [name, operations] : components(plan)) sum += operations.hardware();
  return sum;
}

}  // namespace loom
