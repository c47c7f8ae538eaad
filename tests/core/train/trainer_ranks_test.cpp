// The same steps on several ranks: equal results under every layout, the same statistics on all ranks, and nothing
// changed by a step that was not taken. The model has a state and an interior loss.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>

#include "core/base/error.h"
#include "core/base/signal.h"
#include "core/checkpoint/parts.h"
#include "core/comm/loopback.h"
#include "core/train/trainer.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/checkpoint/gather_tensors.h"
#include "tests/core/train/steps.h"

namespace loom::test {
namespace {

// Keeps a running mean of its embeddings' squares.
class MeanConnector : public Connector {
 public:
  explicit MeanConnector(const Declarer& d) {
    const UnitDecl decl{
        "mlp", {{"features", 8, "", false}}, {{"embeddings", kWidth, "slots", false}}, Mixes::none, true, {}};
    const Declarer unit = d.unit(decl);
    mlp_ = std::make_unique<GeluMlp>(unit, GeluMlpOptions{8, 10, kWidth, true, Gelu::exact});
    mean_ = unit.state("mean", {2}, Reduce::sum);
  }
  void run(int, Streams& s, UnitContext& ctx) override {
    const Tensor out = (*mlp_)(s["features"], ctx);
    ctx.contribute(mean_, at::stack({out.detach().square().sum(), at::scalar_tensor(out.size(0), out.options())}));
    s.set("embeddings", out);
  }
  void end_step(StateTable& states) override {
    states.set(mean_, 0.5 * states.value(mean_) + 0.5 * states.contribution(mean_));
  }

 private:
  std::unique_ptr<GeluMlp> mlp_;
  State mean_;
};

struct Case {
  int world = 1, shard = 0, backbone_sp = 1, encoder_sp = 1;

  WorldLayout layout() const {
    WorldLayout out;
    out.world = world;
    out.backbone = {backbone_sp, shard};
    out.encoders["image"] = {encoder_sp, shard};
    out.connectors["image"] = {1, shard};
    return out;
  }
  std::string text() const { return concat(world, " ranks, shard ", shard, ", sp ", backbone_sp, " and ", encoder_sp); }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{1, 0, 1, 1}, {2, 1, 1, 1}, {2, 2, 2, 1}, {2, 0, 1, 2},
                                        {4, 0, 1, 1}, {4, 1, 2, 4}, {4, 2, 4, 2}, {4, 4, 2, 1}};
  return all;
}

template <class Make>
std::shared_ptr<BoundComponent> bind_on(Communicator& comm, int shard, const std::string& name, const Make& make) {
  Declarations declarations;
  declarations.component = name;
  const std::shared_ptr<Component> component = make(Declarer(declarations));
  BindOptions options;
  options.master = options.compute = at::kDouble;
  options.origin = "plugin 'tiny'";
  options.comm = &comm;
  options.shard = shard;
  return std::make_shared<BoundComponent>(component, std::move(declarations), options);
}

// A trainer on one of several ranks.
struct RankTraining {
  RankTraining(Communicator& comm, const Case& on, const char* kind) {
    TinyOptions tiny;
    tiny.interior_loss = true;
    tiny.dropout = 0.2;
    ModelParts parts;
    parts.encoders["image"] =
        bind_on(comm, on.shard, "encoders.image", [&](Declarer d) { return std::make_shared<TinyEncoder>(d, tiny); });
    parts.connectors["image"] =
        bind_on(comm, on.shard, "connectors.image", [](Declarer d) { return std::make_shared<MeanConnector>(d); });
    parts.backbone =
        bind_on(comm, on.shard, "backbone", [&](Declarer d) { return std::make_shared<TinyBackbone>(d, tiny); });
    model = std::make_unique<MultimodalModel>(std::move(parts), 7);
    model->init_weights(3);
    OptimizerConfig config;
    config.kind = kind;
    config.groups.weight_decay = 0.1;
    optimizer = make_optimizer(config, model->buffers());
    TrainerOptions options;
    options.schedule = {0.05, 2, 10, "cosine", 0, 0.1};
    options.clip = 0.5;
    trainer = std::make_unique<Trainer>(*model, *optimizer, options);
    layout = on.layout();
  }
  StepStats step(int64_t number, const std::vector<PreparedSample>& samples, int64_t budget = 20) {
    return trainer->step(step_of(number, samples, budget, layout));
  }
  // This rank's weights, optimizer state and states.
  std::vector<NamedTensor> parts() {
    std::vector<NamedTensor> out;
    for (UnitBuffer* buffer : model->buffers()) append_parts(*buffer, buffer->master(), "", out);
    for (NamedTensor& state : optimizer->state()) out.push_back(std::move(state));
    for (BoundComponent* component : model->components()) {
      for (size_t s = 0; s < component->states().size(); ++s)
        out.push_back({component->declarations().states[s].name,
                       component->states().value_at(s),
                       {},
                       {},
                       model->comm().rank() == 0});
    }
    return out;
  }

  WorldLayout layout;
  std::unique_ptr<MultimodalModel> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Trainer> trainer;
};

std::vector<Tensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<Tensor> out;
  for (const NamedTensor& tensor : tensors) out.push_back(tensor.tensor.clone());
  return out;
}

bool unchanged(const std::vector<Tensor>& before, const std::vector<NamedTensor>& after) {
  bool same = before.size() == after.size();
  for (size_t i = 0; same && i < before.size(); ++i) same = at::equal(before[i], after[i].tensor);
  return same;
}

struct Result {
  std::vector<std::vector<StepStats>> stats;  // by rank
  std::map<std::string, Tensor> tensors;      // whole
};

Result train(const Case& on, const char* kind, int64_t steps) {
  Result result;
  result.stats.resize(static_cast<size_t>(on.world));
  run_loopback(on.world, [&](Communicator& comm) {
    RankTraining training(comm, on, kind);
    std::vector<StepStats> stats;
    for (int64_t step = 1; step <= steps; ++step) {
      std::vector<PreparedSample> samples = uneven_samples();
      if (step == 2) samples.resize(1);  // fewer samples than ranks
      stats.push_back(training.step(step, samples));
    }
    for (const NamedTensor& tensor : test::gather_tensors(comm, training.parts()))
      result.tensors[tensor.name] = tensor.tensor;
    result.stats[static_cast<size_t>(comm.rank())] = std::move(stats);
  });
  return result;
}

TEST(TrainerOnRanks, EveryLayoutTakesTheSameSteps) {
  const Result wanted = train({}, "sgd", 4);
  ASSERT_GT(wanted.tensors.at("connectors.image.mlp.mean").abs().min().item<double>(), 0);
  for (const Case& on : cases()) {
    const Result got = train(on, "sgd", 4);
    int64_t split = 0;
    for (size_t s = 0; s < 4; ++s) {
      const StepStats &a = got.stats[0][s], &b = wanted.stats[0][s];
      EXPECT_NEAR(a.loss, b.loss, 1e-10 * b.loss) << on.text();
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-10 * b.grad_norm) << on.text();
      ASSERT_EQ(a.interior.size(), 1u) << on.text();
      EXPECT_NEAR(a.interior.at("balance"), b.interior.at("balance"), 1e-10 * b.interior.at("balance")) << on.text();
      EXPECT_EQ(a.supervised, b.supervised);
      EXPECT_TRUE(a.updated);
      EXPECT_EQ(a.bytes_sent > 0, on.world > 1);
      split += a.counters.services.split_segments;
    }
    EXPECT_EQ(split > 0, on.backbone_sp > 1 || on.encoder_sp > 1) << on.text();
    ASSERT_EQ(got.tensors.size(), wanted.tensors.size());
    for (const auto& [name, tensor] : wanted.tensors) {
      const double size = std::max(tensor.norm().item<double>(), 1e-6);
      EXPECT_LE((got.tensors.at(name) - tensor).norm().item<double>(), 1e-10 * size) << name << ", " << on.text();
    }
  }
}

TEST(TrainerOnRanks, AllRanksSeeTheSameStatistics) {
  for (const Case& on : cases()) {
    const Result result = train(on, "adamw", 3);
    for (const std::vector<StepStats>& stats : result.stats) {
      for (size_t s = 0; s < stats.size(); ++s) {
        const StepStats &a = stats[s], &b = result.stats[0][s];
        EXPECT_EQ(a.loss, b.loss);
        EXPECT_EQ(a.grad_norm, b.grad_norm);
        EXPECT_EQ(a.interior, b.interior);
        EXPECT_EQ(a.component_norms, b.component_norms);
        EXPECT_EQ(a.bytes_sent, b.bytes_sent);
        EXPECT_EQ(a.counters.units_run, b.counters.units_run);
        EXPECT_EQ(a.counters.units_skipped_empty, b.counters.units_skipped_empty);
        EXPECT_GT(a.counters.units_run, 0);
      }
    }
  }
}

TEST(TrainerOnRanks, StepWithoutSupervisedTokensChangesNoBit) {
  for (const Case& on : cases()) {
    run_loopback(on.world, [&](Communicator& comm) {
      RankTraining training(comm, on, "adamw");
      training.step(1, uneven_samples());
      const std::vector<Tensor> before = copies_of(training.parts());
      const StepStats stats = training.step(2, {sample_of(5, 3, 4, 0), sample_of(6, 2, 3, 0)});
      EXPECT_TRUE(unchanged(before, training.parts())) << on.text();
      EXPECT_FALSE(stats.updated);
      EXPECT_EQ(stats.step, 2);
      EXPECT_EQ(stats.supervised, 0);
      EXPECT_EQ(stats.loss, 0);
      EXPECT_TRUE(stats.interior.empty());
      EXPECT_EQ(stats.counters.units_run, 0);
      EXPECT_EQ(stats.lr, learning_rate(training.trainer->options().schedule, 2));  // the schedule goes on
      EXPECT_EQ(training.optimizer->steps(), 1);
      EXPECT_TRUE(training.step(3, uneven_samples()).updated);
      EXPECT_FALSE(unchanged(before, training.parts()));
    });
  }
}

TEST(TrainerOnRanks, AllRanksRefuseWithTheSameWordsAndKeepEverything) {
  for (const Case& on : cases()) {
    std::vector<std::string> words(static_cast<size_t>(on.world));
    run_loopback(on.world, [&](Communicator& comm) {
      RankTraining training(comm, on, "adamw");
      training.step(1, uneven_samples());
      const std::vector<Tensor> before = copies_of(training.parts());
      std::vector<PreparedSample> bad = uneven_samples();
      bad[1].media[0].fill_(std::numeric_limits<float>::quiet_NaN());
      words[static_cast<size_t>(comm.rank())] = line_of<UserError>([&] { training.step(2, bad); });
      EXPECT_TRUE(unchanged(before, training.parts())) << on.text();
      EXPECT_EQ(training.optimizer->steps(), 1);
    });
    for (const std::string& line : words) EXPECT_EQ(line, words[0]);
    EXPECT_HAS(words[0], "step 2: the gradient of encoders.image.embed.");
  }
}

TEST(TrainerOnRanks, ARequestToStopReachesAllRanks) {
  install_signal_handlers();
  for (const int world : {1, 4}) {
    clear_stop_request();
    run_loopback(world, [&](Communicator& comm) {
      RankTraining training(comm, {world, 0, 1, 1}, "sgd");
      EXPECT_FALSE(training.step(1, uneven_samples()).stop);
      comm.barrier("test: before the signal", world_group(world));
      if (comm.rank() == world - 1) std::raise(SIGTERM);
      EXPECT_TRUE(training.step(2, uneven_samples()).stop);
      EXPECT_TRUE(training.step(3, {sample_of(5, 3, 4, 0)}).stop);  // also when nothing is supervised
    });
  }
  clear_stop_request();
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
}

// Weights, optimizer state and states written under one layout are, bit for bit, what another layout reads.
TEST(TrainerOnRanks, CheckpointsFitEveryLayout) {
  for (const Case& from : {Case{1, 0, 1, 1}, Case{2, 2, 2, 1}, Case{4, 2, 1, 2}}) {
    const TempFolder run;
    std::string folder;
    std::map<std::string, Tensor> saved;
    run_loopback(from.world, [&](Communicator& comm) {
      RankTraining training(comm, from, "adamw");
      for (int64_t step = 1; step <= 2; ++step) training.step(step, uneven_samples());
      const std::vector<NamedTensor> whole = test::gather_tensors(comm, training.parts());
      if (comm.rank() != 0) return;
      folder = save_checkpoint(run.path(), 2, whole);
      for (const NamedTensor& tensor : whole) saved[tensor.name] = tensor.tensor.clone();
    });
    ASSERT_EQ(saved.count("optimizer.exp_avg.backbone.embed.weight"), 1u);
    ASSERT_EQ(saved.at("connectors.image.mlp.mean").scalar_type(), at::kDouble);
    for (const Case& to : cases()) {
      run_loopback(to.world, [&](Communicator& comm) {
        RankTraining training(comm, to, "adamw");
        load_checkpoint(folder, training.parts());
        training.model->weights_written();
        for (const NamedTensor& tensor : test::gather_tensors(comm, training.parts()))
          EXPECT_TRUE(at::equal(tensor.tensor, saved.at(tensor.name))) << tensor.name << ": " << to.text();
        training.optimizer->set_steps(2);
        training.step(3, uneven_samples());
      });
    }
  }
}

}  // namespace
}  // namespace loom::test
