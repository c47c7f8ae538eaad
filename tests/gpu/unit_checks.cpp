// Every unit of a recipe's components: the same inputs, hence no error that grows from unit to unit, and the same
// gradients of its outputs. Then whole things: scores, logits with a KV cache, and a few training steps.
#include <ATen/ATen.h>

#include <optional>

#include "core/base/error.h"
#include "core/data/batch_builder.h"
#include "core/nn/ops/pieces.h"
#include "core/train/trainer.h"
#include "pipelines/job.h"
#include "pipelines/plan_batch.h"
#include "tests/gpu/compare.h"

namespace loom::gpu {
namespace {

// A microbatch of invented samples with contents.
LoadedStep filled_step(const Job& job) {
  LoadedStep step = synthetic_batch(job).largest.front();
  int64_t next = 5;
  for (PreparedSample& sample : step.samples) {
    for (Tensor& media : sample.media) media = at::randn(media.sizes());
    for (int64_t& token : sample.tokens) token = next = (next * 31 + 7) % 250;
    for (const ItemPlace& place : sample.verdict.items) {
      for (int64_t i = 0; place.begin >= 0 && i < place.slots; ++i)
        sample.tokens[static_cast<size_t>(place.begin + i)] = 0;
    }
  }
  return step;
}

struct Side {
  Job job;
  Pieces pieces;

  Side(const std::string& recipe, const std::string& device, const std::string& precision, bool recompute, Pieces which)
      : job(make_job(recipe, {"train.device=" + device, "train.precision=" + precision,
                              std::string("train.recompute=") + (recompute ? "true" : "false")})),
        pieces(which) {}
};

std::vector<std::pair<std::string, Tensor>> gradients_of(BoundComponent& component) {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const auto& buffer : component.buffers()) {
    if (!buffer->trainable()) continue;
    for (size_t e = 0; e < buffer->entries().size(); ++e)
      out.emplace_back(buffer->entries()[e].name, buffer->gradient_of(e));
  }
  return out;
}

class Units {
 public:
  Units(Compare& compare, const std::string& title, double value_limit, double gradient_limit)
      : compare_(compare), title_(title), value_limit_(value_limit), gradient_limit_(gradient_limit) {}

  // Runs all units of a component on both sides; `streams` are those of the CPU, and hold its outputs afterwards.
  void component(Side& here, Side& there, BoundComponent& mine, BoundComponent& other, const Partitions& partitions,
                 StreamMap& streams) {
    SlabPool my_pool(mine.largest_buffer_bytes(), mine.device()),
        other_pool(other.largest_buffer_bytes(), other.device());
    for (int unit = 0; unit < mine.units(); ++unit) {
      StreamMap copies;
      for (const auto& [name, value] : streams) copies[name] = compare_.there(value);
      TapeContext context;
      context.partitions = &partitions;
      context.seed = 4;
      context.step = 2;
      context.inputs_need_grad = true;
      Tape my_tape(mine, my_pool, context), other_tape(other, other_pool, context);
      with(here, [&] { my_tape.forward(unit, streams); });
      with(there, [&] { other_tape.forward(unit, copies); });
      const UnitDecl& decl = mine.declarations().units[static_cast<size_t>(unit)];
      const std::string name = concat(title_, " ", mine.name(), ".", decl.name);
      compare_.begin(name, value_limit_);
      StreamMap my_gradients, other_gradients;
      for (const StreamDecl& output : decl.outputs) {
        const auto found = streams.find(output.name);
        if (found == streams.end()) continue;
        compare_.same(output.name, found->second, copies.at(output.name));
        my_gradients[output.name] = at::randn(found->second.sizes()).to(found->second.scalar_type());
        other_gradients[output.name] = compare_.there(my_gradients[output.name]);
      }
      compare_.end();
      mine.zero_gradients();
      other.zero_gradients();
      with(here, [&] { my_tape.backward(unit, my_gradients); });
      with(there, [&] { other_tape.backward(unit, other_gradients); });
      compare_.begin(name + ", gradients", gradient_limit_);
      for (const auto& [stream, value] : my_gradients) compare_.same(stream, value, other_gradients.at(stream));
      const auto a = gradients_of(mine), b = gradients_of(other);
      for (size_t i = 0; i < a.size(); ++i) {
        if (a[i].second.any().item<bool>() || b[i].second.any().item<bool>())
          compare_.same(a[i].first, a[i].second, b[i].second);
      }
      compare_.end();
    }
  }

  template <class Run>
  static void with(const Side& side, const Run& run) {
    const ScopedPieces scope(side.pieces);
    run();
  }

 private:
  Compare& compare_;
  std::string title_;
  double value_limit_, gradient_limit_;
};

// Prefill of the samples' prompts, then one more token each.
Tensor two_logits(MultimodalModel& model, const ModelBatch& prompts) {
  const Segments& text = prompts.text.at("");
  int64_t longest = 0;
  for (int64_t s = 0; s < text.count(); ++s) longest = std::max(longest, text.length(s));
  KvCache cache(text.count(), longest + 1);
  const Tensor first = model.logits(prompts, cache).cpu();
  ModelBatch next;
  next.tokens = at::full({text.count()}, 9, at::kLong);
  next.loss_rows = at::arange(text.count(), at::kLong);
  for (int64_t s = 0; s < text.count(); ++s)
    next.text[""].append(1, {static_cast<uint64_t>(s), 0, cache.lengths()[static_cast<size_t>(s)]},
                         {cache.lengths()[static_cast<size_t>(s)]});
  return at::cat({first, model.logits(next, cache).cpu()});
}

void check_whole(Compare& compare, const std::string& title, Side& here, Side& there, const LoadedStep& step,
                 double limit) {
  const ModelBatch batch = build_batch(step, 0, *here.job.model);
  std::vector<const PreparedSample*> samples;
  for (const PreparedSample& sample : step.samples) samples.push_back(&sample);
  const ModelBatch prompts = build_prompt_batch(samples, *here.job.model);
  Tensor scores[2], logits[2];
  Side* sides[] = {&here, &there};
  for (int i = 0; i < 2; ++i) {
    Units::with(*sides[i], [&] {
      scores[i] = sides[i]->job.model->score(batch).log_probs;
      logits[i] = two_logits(*sides[i]->job.model, prompts);
    });
  }
  compare.begin(title + " scores, logits with a cache", limit);
  compare.same("log-probabilities", scores[0], scores[1]);
  compare.same("logits", logits[0], logits[1]);
  compare.end();

  compare.begin(title + " three training steps", limit);
  std::vector<StepStats> stats[2];
  for (int i = 0; i < 2; ++i) {
    Units::with(*sides[i], [&] {
      const Job& job = sides[i]->job;
      const auto optimizer = make_optimizer(read_optimizer(job.recipe.train()), job.model->buffers());
      Trainer trainer(*job.model, *optimizer,
                      TrainerOptions{read_schedule(job.recipe.train(), 10), job.recipe.train().get_number("clip"), {}});
      LoadedStep again = step;
      for (int64_t s = 1; s <= 3; ++s) {
        again.plan.step = s;
        stats[i].push_back(trainer.step(again));
      }
    });
  }
  for (size_t s = 0; s < 3; ++s) {
    compare.same(concat("loss of step ", s + 1), stats[0][s].loss, stats[1][s].loss);
    compare.same(concat("gradient norm of step ", s + 1), stats[0][s].grad_norm, stats[1][s].grad_norm);
  }
  compare.same("loss must fall", 0.0, stats[1][2].loss < stats[1][0].loss ? 0.0 : 1.0);
  compare.end();
}

}  // namespace

void check_units(Compare& compare, const std::string& recipe, const std::string& precision, bool recompute) {
  at::manual_seed(12);
  Side here(recipe, "cpu", precision, recompute, Pieces::fused);
  Side there(recipe, compare.device().is_cuda() ? compare.device().str() : "cpu", precision, recompute,
             compare.composed() ? Pieces::composed : Pieces::fused);
  const std::string title = precision + (recompute ? ", recompute:" : ":");
  const bool half = precision == "bf16";
  const LoadedStep step = filled_step(here.job);
  const ModelBatch batch = build_batch(step, 0, *here.job.model);
  Units units(compare, title, half ? 3e-2 : 5e-5, half ? 6e-2 : 2e-4);
  const ModelParts &mine = here.job.model->parts(), &other = there.job.model->parts();
  for (const EncoderBatch& items : batch.encode) {
    const std::string& modality = items.modality;
    StreamMap streams{{"media", items.media}};
    units.component(here, there, *mine.encoders.at(modality), *other.encoders.at(modality), items.encoder, streams);
    units.component(here, there, *mine.connectors.at(modality), *other.connectors.at(modality), items.connector,
                    streams);
  }
  StreamMap text{{"tokens", batch.tokens}, {"loss_rows", batch.loss_rows}, {"targets", batch.targets}};
  units.component(here, there, *mine.backbone, *other.backbone, batch.text, text);
  check_whole(compare, title, here, there, step, half ? 5e-2 : 5e-4);
}

}  // namespace loom::gpu
