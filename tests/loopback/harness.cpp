#include "tests/loopback/harness.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/checkpoint/box_view.h"
#include "core/comm/loopback.h"
#include "core/data/batch_builder.h"

namespace loom::test {
namespace {

constexpr double kLearningRate = 0.005;

// A box of a parameter on a rank.
struct Piece {
  std::string name, unit;
  std::vector<int64_t> shape;
  Box box;
  Tensor weight, gradient;  // undefined when frozen
};

struct RankStep {
  double loss_sum = 0;
  std::map<std::string, double> interior;
  std::map<std::string, Tensor> states;
  std::vector<Piece> pieces;
};

struct RankRecord {
  std::vector<RankStep> steps;
  RunCounters counters;
};

void collect_gradients(MultimodalModel& model, RankStep& out) {
  for (UnitBuffer* buffer : model.buffers()) {
    for (size_t e = 0; e < buffer->entries().size(); ++e) {
      const BufferEntry& entry = buffer->entries()[e];
      Piece piece{entry.name, buffer->unit(), entry.global_shape, entry.box, {}, {}};
      if (buffer->trainable()) piece.gradient = buffer->gradient_of(e).clone();
      out.pieces.push_back(std::move(piece));
    }
  }
}

void update(MultimodalModel& model) {
  for (UnitBuffer* buffer : model.buffers()) {
    if (buffer->trainable()) buffer->master().sub_(buffer->gradient(), kLearningRate);
  }
  model.weights_written();
}

void collect_after(MultimodalModel& model, RankStep& out) {
  size_t next = 0;
  for (UnitBuffer* buffer : model.buffers()) {
    for (size_t e = 0; e < buffer->entries().size(); ++e)
      out.pieces[next++].weight = buffer->master_of(e).detach().clone();
  }
  for (BoundComponent* component : model.components()) {
    for (size_t i = 0; i < component->states().size(); ++i)
      out.states[component->declarations().states[i].name] = component->states().value_at(i).clone();
  }
}

RankRecord train(MultimodalModel& model, Communicator& comm, const RunData& data, const std::vector<StepPlan>& plans) {
  RankRecord record;
  comm.reset_counts();
  for (size_t s = 0; s < plans.size(); ++s) {
    RankStep& step = record.steps.emplace_back();
    const Denominators denominators = denominators_of(plans[s]);
    model.zero_gradients();
    for (size_t m = 0; m < plans[s].microbatches.size(); ++m) {
      const ModelBatch batch = rank_batch(plans[s], m, data[s], model, comm.rank());
      const MicrobatchResult result = model.forward_backward(batch, plans[s].step, denominators);
      step.loss_sum += result.loss_sum;
      for (const auto& [name, value] : result.interior) step.interior[name] += value;
      record.counters.tape += result.counters;
    }
    model.finish_gradients();
    collect_gradients(model, step);
    model.end_step();
    update(model);
    collect_after(model, step);
  }
  record.counters.bytes_sent = comm.bytes_sent();
  const auto exchanged = comm.counts().find(CommKind::exchange);
  if (exchanged != comm.counts().end()) record.counters.exchanged = exchanged->second.bytes;
  return record;
}

Tensor part_of(const Tensor& whole, const Box& box) { return box_view(whole, box, whole_box(whole.sizes().vec())); }

// Whole tensors out of the pieces of all ranks; replicas of a piece must be the same to the bit.
void assemble(const std::vector<RankRecord>& ranks, size_t step, Tensor Piece::*field,
              std::map<std::string, Tensor>& out, std::string& disagreement) {
  std::map<std::string, Tensor> filled;
  for (const RankRecord& rank : ranks) {
    for (const Piece& piece : rank.steps[step].pieces) {
      const Tensor& value = piece.*field;
      if (!value.defined()) continue;
      if (out.find(piece.name) == out.end()) {
        const std::vector<int64_t> shape = piece.shape.empty() ? value.sizes().vec() : piece.shape;
        out[piece.name] = at::zeros(shape, value.options());
        filled[piece.name] = at::zeros(shape, at::kBool);
      }
      const Tensor to = part_of(out[piece.name], piece.box), seen = part_of(filled[piece.name], piece.box);
      if (!seen.any().item<bool>()) {
        to.copy_(value.view(to.sizes()));
        seen.fill_(true);
      } else if (!at::equal(to, value.view(to.sizes()))) {
        disagreement = concat(piece.name, ": replicas differ after step ", step + 1);
      }
    }
  }
  for (const auto& [name, mask] : filled)
    LOOM_CHECK(mask.all().item<bool>(), name, ": no rank holds some of its elements");
}

RunRecord join(const std::vector<RankRecord>& ranks, const std::vector<StepPlan>& plans) {
  RunRecord out;
  for (size_t s = 0; s < plans.size(); ++s) {
    StepRecord& step = out.steps.emplace_back();
    for (const RankRecord& rank : ranks) {
      step.loss += rank.steps[s].loss_sum / static_cast<double>(std::max<int64_t>(plans[s].supervised, 1));
      for (const auto& [name, value] : rank.steps[s].interior) step.interior[name] += value;
      for (const auto& [name, value] : rank.steps[s].states) {
        const auto [found, fresh] = step.states.emplace(name, value);
        if (!fresh && !at::equal(found->second, value))
          out.disagreement = concat(name, ": ranks differ after step ", s + 1);
      }
    }
    assemble(ranks, s, &Piece::gradient, step.gradients, out.disagreement);
    assemble(ranks, s, &Piece::weight, step.weights, out.disagreement);
  }
  for (const RankRecord& rank : ranks) {
    out.counters.tape += rank.counters.tape;
    out.counters.bytes_sent += rank.counters.bytes_sent;
    out.counters.exchanged += rank.counters.exchanged;
    for (const Piece& piece : rank.steps.front().pieces) out.unit_of[piece.name] = piece.unit;
  }
  return out;
}

using Tensors = std::map<std::string, Tensor>;

class Comparison {
 public:
  explicit Comparison(const RunRecord& reference) : reference_(reference) {}

  void number(double a, double b, const std::string& where) {
    note(a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), 1e-9), where);
  }
  // `exact`: the truth, if it is known; `others`: like a, added in other orders.
  void tensors(const Tensors& a, const Tensors& b, const Tensors* exact, const std::vector<const Tensors*>& others,
               const std::string& where) {
    LOOM_CHECK(a.size() == b.size(), where, ": ", a.size(), " tensors against ", b.size());
    std::map<std::string, double> squares;
    for (const auto& [name, x] : a) squares[unit_of(name)] += x.to(at::kDouble).pow(2).sum().item<double>();
    for (const auto& [name, x] : a) {
      const auto found = b.find(name);
      LOOM_CHECK(found != b.end() && found->second.sizes() == x.sizes(), where, " of ", name, " has another shape");
      ++worst_.tensors;
      const double floor = 1e-6 * std::sqrt(squares[unit_of(name)]);
      double difference = relative(x, found->second, floor);
      double noise = exact == nullptr ? 0 : relative(x, exact->at(name), floor);
      for (const Tensors* other : others) noise = std::max(noise, relative(other->at(name), exact->at(name), floor));
      noise *= kNoise;
      if (difference > tolerance(at::kFloat) && noise > tolerance(at::kFloat)) {
        difference *= tolerance(at::kFloat) / noise;
        ++worst_.by_noise;
      }
      note(difference, concat(where, " of ", name));
    }
  }
  Difference take() { return worst_; }

 private:
  static double relative(const Tensor& x, const Tensor& y, double floor) {
    const Tensor wide = x.to(at::kDouble);
    const double difference = (wide - y.to(at::kDouble)).norm().item<double>();
    return difference == 0 ? 0 : difference / std::max({wide.norm().item<double>(), floor, 1e-300});
  }
  const std::string& unit_of(const std::string& name) const {
    const auto found = reference_.unit_of.find(name);
    return found == reference_.unit_of.end() ? name : found->second;
  }
  void note(double difference, const std::string& where) {
    if (difference <= worst_.worst) return;  // false for NaN
    worst_.worst = std::isnan(difference) ? 1e300 : difference;
    worst_.where = where;
  }

  const RunRecord& reference_;
  Difference worst_;
};

}  // namespace

RunData random_data(const ModelSpec& spec, const BindChoice& bind, const DataChoice& choice, int64_t steps) {
  const auto model = make_model(spec, bind, {}, nullptr);
  RunData out;
  for (int64_t s = 1; s <= steps; ++s) out.push_back(random_samples(*model, choice, s));
  return out;
}

std::vector<StepPlan> random_plans(const ModelSpec& spec, const BindChoice& bind, const LayoutChoice& layout,
                                   const RunData& data) {
  const auto model = make_model(spec, bind, {}, nullptr);
  std::vector<StepPlan> out;
  for (size_t s = 0; s < data.size(); ++s)
    out.push_back(random_plan(data[s], static_cast<int64_t>(s) + 1, layout, world_layout(*model, layout)));
  return out;
}

Denominators denominators_of(const StepPlan& plan) {
  Denominators out;
  out.supervised_tokens = static_cast<double>(std::max<int64_t>(plan.supervised, 1));
  out.rows = static_cast<double>(std::max<int64_t>(plan.tokens, 1));
  out.samples = static_cast<double>(std::max<size_t>(plan.samples.size(), 1));
  return out;
}

ModelBatch rank_batch(const StepPlan& plan, size_t microbatch, const std::vector<PreparedSample>& samples,
                      const MultimodalModel& model, int rank) {
  std::vector<const PreparedSample*> shown(samples.size(), nullptr);
  const auto show = [&](int64_t sample, const auto& pieces) {
    for (const auto& piece : pieces) {
      if (piece.rank == rank) shown[static_cast<size_t>(sample)] = &samples[static_cast<size_t>(sample)];
    }
  };
  // Of all microbatches: a pass of an encoder may serve several.
  for (const MicrobatchPlan& part : plan.microbatches) {
    for (const PlacedSample& placed : part.samples) show(placed.sample, placed.pieces);
    for (const auto& [modality, items] : part.items) {
      for (const PlacedItem& placed : items) show(placed.sample, placed.pieces);
    }
  }
  return build_batch(plan, microbatch, shown, batch_modalities(model), rank);
}

RunRecord run_plans(const ModelSpec& spec, const BindChoice& bind, const LayoutChoice& layout, const RunData& data,
                    const std::vector<StepPlan>& plans) {
  std::vector<RankRecord> ranks(static_cast<size_t>(layout.world));
  run_loopback(layout.world, {60, 1, layout.delays}, [&](Communicator& comm) {
    const auto model = make_model(spec, bind, plans.front().layout, &comm);
    ranks[static_cast<size_t>(comm.rank())] = train(*model, comm, data, plans);
  });
  return join(ranks, plans);
}

RunRecord run_reference(const ModelSpec& spec, BindChoice bind, const RunData& data) {
  bind.recompute = bind.always_slab = false;
  std::vector<StepPlan> plans;
  for (size_t s = 0; s < data.size(); ++s) plans.push_back(single_plan(data[s], static_cast<int64_t>(s) + 1));
  return run_plans(spec, bind, {}, data, plans);
}

RunRecord run_in_two(const ModelSpec& spec, BindChoice bind, const RunData& data, uint64_t seed) {
  bind.recompute = bind.always_slab = false;
  LayoutChoice layout;
  layout.microbatches = 2;
  layout.seed = seed;
  return run_plans(spec, bind, layout, data, random_plans(spec, bind, layout, data));
}

Difference compare(const RunRecord& reference, const RunRecord& run, const RunRecord* exact,
                   const std::vector<RunRecord>& others) {
  LOOM_CHECK(reference.steps.size() == run.steps.size(), "runs of unequal length");
  Comparison comparison(reference);
  const bool single = !reference.steps.empty() && !reference.steps[0].gradients.empty() &&
                      reference.steps[0].gradients.begin()->second.scalar_type() == at::kFloat;
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    const StepRecord &a = reference.steps[s], &b = run.steps[s];
    const std::string at = concat("step ", s + 1, ", ");
    const auto tensors = [&](Tensors StepRecord::*which, const char* words) {
      std::vector<const Tensors*> of_others;
      for (const RunRecord& other : others) of_others.push_back(&(other.steps[s].*which));
      comparison.tensors(a.*which, b.*which, exact == nullptr ? nullptr : &(exact->steps[s].*which), of_others,
                         at + words);
    };
    comparison.number(a.loss, b.loss, at + "loss");
    for (const auto& [name, value] : a.interior) {
      const auto found = b.interior.find(name);
      comparison.number(value, found == b.interior.end() ? 0 : found->second, concat(at, "interior loss ", name));
    }
    tensors(&StepRecord::states, "state");
    if (single && s > 0) continue;
    tensors(&StepRecord::gradients, "gradient");
    tensors(&StepRecord::weights, "weight");
  }
  return comparison.take();
}

}  // namespace loom::test
