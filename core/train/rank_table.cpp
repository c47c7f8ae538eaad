// The length of a message follows from the plan, which all ranks know, so nobody announces it.
#include "core/train/rank_table.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace loom {
namespace {

constexpr size_t kFixed = 4;  // phases, their fingerprint, seconds, compute
constexpr size_t kPerPhase = 3;

// More than the actions of any order of passes make: per microbatch a batch, backbone, encoders and connectors, both
// ways; per step data, gradients, norm and update.
size_t most_phases_of(const StepPlan& plan, size_t components) {
  return 8 + plan.microbatches.size() * (1 + 4 * components);
}

// A number that says which phases these are; a double holds it exactly.
double fingerprint(const std::vector<StepPhase>& phases) {
  constexpr uint64_t kPrime = 1'000'003, kBits = (uint64_t{1} << 48) - 1;
  uint64_t out = 17;
  const auto mix = [&](uint64_t value) { out = (out * kPrime + value) & kBits; };
  for (const StepPhase& phase : phases) {
    mix(static_cast<uint64_t>(phase.action));
    for (const char c : phase.component) mix(static_cast<unsigned char>(c));
  }
  return static_cast<double>(out);
}

std::map<std::string, std::vector<double>> summed(const RankTable& table,
                                                  const std::vector<std::vector<double> RankTable::Phase::*>& parts) {
  std::map<std::string, std::vector<double>> out;
  for (const RankTable::Phase& phase : table.phases) {
    if (phase.component.empty()) continue;
    std::vector<double>& sum = out[phase.component];
    sum.resize(table.seconds.size());
    for (const auto part : parts) {
      for (size_t rank = 0; rank < sum.size(); ++rank) sum[rank] += (phase.*part)[rank];
    }
  }
  return out;
}

}  // namespace

std::map<std::string, std::vector<double>> RankTable::compute_by_component() const {
  return summed(*this, {&Phase::compute});
}

std::map<std::string, std::vector<double>> RankTable::communication_by_component() const {
  return summed(*this, {&Phase::inside, &Phase::after});
}

std::map<std::string, double> measured_imbalance(const RankTable& table) {
  std::map<std::string, std::pair<double, double>> sums;  // of the most, of the mean
  for (const RankTable::Phase& phase : table.phases) {
    if (phase.component.empty()) continue;
    auto& [most, mean] = sums[phase.component];
    most += *std::max_element(phase.compute.begin(), phase.compute.end());
    mean += std::accumulate(phase.compute.begin(), phase.compute.end(), 0.0) / table.world();
  }
  std::map<std::string, double> out;
  for (const auto& [component, sum] : sums) {
    if (sum.second > 0) out[component] = sum.first / sum.second;
  }
  return out;
}

RankGather::RankGather(Communicator& comm, std::vector<std::string> components)
    : comm_(comm), components_(std::move(components)) {
  begin_step();
}

std::vector<double> RankGather::sent() const {
  std::vector<double> out(components_.size() + 1);
  for (const auto& [site, count] : comm_.traffic()) {
    const auto found = std::find(components_.begin(), components_.end(), site.component);
    out[static_cast<size_t>(found - components_.begin())] += static_cast<double>(count.bytes);
  }
  return out;
}

void RankGather::begin_step() { before_ = sent(); }

std::vector<double> RankGather::packed(const StepTime& time, size_t most_phases) const {
  const bool fits = time.phases.size() <= most_phases;
  std::vector<double> out{fits ? static_cast<double>(time.phases.size()) : -1, fingerprint(time.phases), time.seconds,
                          time.compute};
  const std::vector<double> now = sent();
  for (size_t i = 0; i < now.size(); ++i) out.push_back(now[i] - before_[i]);
  for (size_t i = 0; fits && i < time.phases.size(); ++i) {
    const StepPhase& phase = time.phases[i];
    out.insert(out.end(), {phase.compute, phase.inside, phase.after});
  }
  out.resize(kFixed + now.size() + kPerPhase * most_phases);
  return out;
}

std::optional<RankTable> RankGather::table_of(const StepTime& time,
                                              const std::vector<std::vector<double>>& ranks) const {
  RankTable out;
  for (const StepPhase& phase : time.phases) {
    out.phases.emplace_back();
    out.phases.back().action = phase.action;
    out.phases.back().component = phase.component;
  }
  for (const std::vector<double>& rank : ranks) {
    if (rank[0] != static_cast<double>(time.phases.size()) || rank[1] != ranks[0][1]) return std::nullopt;
    out.seconds.push_back(rank[2]);
    out.compute.push_back(rank[3]);
    size_t next = kFixed;
    for (size_t c = 0; c <= components_.size(); ++c)
      out.sent[c < components_.size() ? components_[c] : ""].push_back(static_cast<int64_t>(rank[next++]));
    for (RankTable::Phase& phase : out.phases) {
      phase.compute.push_back(rank[next++]);
      phase.inside.push_back(rank[next++]);
      phase.after.push_back(rank[next++]);
    }
  }
  return out;
}

std::optional<RankTable> RankGather::gather(const StepTime& time, const StepPlan& plan) {
  std::vector<std::vector<double>> ranks{packed(time, most_phases_of(plan, components_.size()))};
  const auto length = static_cast<int64_t>(ranks[0].size());
  std::vector<Message> messages;
  if (comm_.rank() != 0) {
    messages.push_back({0, at::empty({length}, at::kDouble)});
    std::copy(ranks[0].begin(), ranks[0].end(), messages[0].tensor.mutable_data_ptr<double>());
    comm_.exchange("trainer: what ranks did", messages, {}).wait();
    return std::nullopt;
  }
  for (int rank = 1; rank < comm_.world(); ++rank) messages.push_back({rank, at::empty({length}, at::kDouble)});
  if (!messages.empty()) comm_.exchange("trainer: what ranks did", {}, messages).wait();
  for (const Message& message : messages) {
    const double* values = message.tensor.const_data_ptr<double>();
    ranks.emplace_back(values, values + length);
  }
  return table_of(time, ranks);
}

}  // namespace loom
