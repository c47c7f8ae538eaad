// Plugins that declare other than they do, and layouts and plans that contradict each other: one line on every rank
// that names component and plugin, and the unit where there is one; a rank without rows gets it from its peer. No hang.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <iostream>

#include "core/base/error.h"
#include "core/comm/loopback.h"
#include "tests/loopback/harness.h"

namespace loom::test {
namespace {

enum class Sin {
  attends = 1,
  attends_in_halo,
  sums,
  halos,
  wide,
  few_rows,
  foreign_param,
  no_output,
  throws,
  cut_outside,
  cut_order,
  uneven_partition,
  wrong_count,
  bad_permutation,
};

// An encoder of two units of which the second sins.
class BadEncoder : public Encoder {
 public:
  BadEncoder(const Declarer& d, Sin sin) : sin_(sin) {
    const StreamDecl hidden{"hidden", kZooFeatures, "", false}, features{"features", kZooFeatures, "", false};
    const Declarer e = d.unit({"embed", {{"media", kZooMedia, "", false}}, {hidden}, Mixes::none, true, {}});
    embed_ = std::make_unique<Linear>(e, kZooMedia, kZooFeatures);
    foreign_ = e.param("scale", {kZooFeatures}, Init::ones());
    const Mixes mixes = sin == Sin::attends_in_halo ? Mixes::halo : Mixes::none;
    const Declarer b = d.unit({"block", {hidden}, {features}, mixes, true, {}});
    out_ = std::make_unique<Linear>(b, kZooFeatures, kZooFeatures);
  }
  void run(int unit, Streams& s, UnitContext& ctx) override {
    if (unit == 0) return s.set("hidden", (*embed_)(s["media"], ctx));
    const Tensor x = (*out_)(s["hidden"], ctx);
    if (sin_ == Sin::attends || sin_ == Sin::attends_in_halo) {
      Attention attention = ctx.attention({.heads = 2, .kv_heads = 2, .head_dim = 4});
      attention.query(x);
      attention.key(x);
      attention.value(x);
      return s.set("features", attention.output());
    }
    if (sin_ == Sin::sums) ctx.segment_sum(x);
    if (sin_ == Sin::halos) ctx.halo(x, 1, 1);
    if (sin_ == Sin::wide) return s.set("features", at::cat({x, x}, 1));
    if (sin_ == Sin::few_rows) return s.set("features", x.narrow(0, 1, x.size(0) - 1));
    if (sin_ == Sin::foreign_param) return s.set("features", x * ctx[foreign_]);
    if (sin_ == Sin::no_output) return;
    if (sin_ == Sin::throws) throw std::runtime_error("first line\nsecond line");
    s.set("features", x);
  }
  int64_t width() const override { return kZooFeatures; }
  int64_t media_width() const override { return kZooMedia; }
  ItemMeta measure(const MediaInfo& info) const override {
    const int64_t n = flat_tokens(info) + 2;
    return {n, n, static_cast<double>(n), {}};
  }
  ItemLayout layout(const ItemMeta& meta) const override {
    ItemLayout layout = whole_item(meta.tokens);
    if (sin_ == Sin::cut_outside) layout.cuts = {1, meta.tokens + 3};
    if (sin_ == Sin::cut_order) layout.cuts = {2, 1};
    if (sin_ == Sin::uneven_partition) {
      layout.cuts = {1};
      layout.partitions["pairs"].lengths = {meta.tokens * 2 + 1};
    }
    if (sin_ == Sin::wrong_count) layout.partitions[""].lengths = {meta.tokens - 1};
    if (sin_ == Sin::bad_permutation) layout.permutation = std::vector<int64_t>(static_cast<size_t>(meta.tokens), 0);
    return layout;
  }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  Sin sin_;
  std::unique_ptr<Linear> embed_, out_;
  Param foreign_;
};

ModelSpec bad_model(Sin sin) {
  ModelSpec spec;
  spec.name = "bad";
  spec.encoders = {{}};
  spec.encoders.front().custom = [sin](const Declarer& d) { return std::make_shared<BadEncoder>(d, sin); };
  return spec;
}

// What each rank was told.
std::vector<std::string> outcomes(const ModelSpec& spec, const RunData& data, const std::vector<StepPlan>& plans,
                                  int* exit_code) {
  const int world = plans.front().layout.world;
  std::vector<std::string> out(static_cast<size_t>(world), "no error");
  try {
    run_loopback(world, {60, 1, 0}, [&](Communicator& comm) {
      try {
        const auto model = make_model(spec, {}, plans.front().layout, &comm);
        model->zero_gradients();
        const ModelBatch batch = rank_batch(plans.front(), 0, data.front(), *model, comm.rank());
        model->forward_backward(batch, 1, denominators_of(plans.front()));
        model->finish_gradients();
        comm.barrier("end", world_group(world));
      } catch (const std::exception& error) {
        out[static_cast<size_t>(comm.rank())] = error.what();
        throw;
      }
    });
    *exit_code = 0;
  } catch (const Error& error) {
    *exit_code = error.exit_code();
  }
  return out;
}

void expect_words(const std::vector<std::string>& told, const std::vector<std::string>& words, const std::string& who) {
  for (size_t rank = 0; rank < told.size(); ++rank) {
    for (const std::string& word : words) {
      EXPECT_NE(told[rank].find(word), std::string::npos)
          << who << ", rank " << rank << " of " << told.size() << ": expected '" << word << "' in: " << told[rank];
    }
    EXPECT_EQ(told[rank].find('\n'), std::string::npos) << who << ": " << told[rank];
  }
}

const std::vector<LayoutChoice>& layouts() {
  static const std::vector<LayoutChoice> all{
      {.world = 1},
      {.world = 2},
      {.world = 2, .encoder_sp = 2, .backbone_sp = 2},
      {.world = 2, .placing = Placing::one_rank},  // one rank has no rows of the encoder
      {.world = 4, .placing = Placing::subsets},
  };
  return all;
}

struct Expected {
  Sin sin;
  std::vector<std::string> words;
};

TEST(LoopbackBadPlugins, OneLineOnEveryRank) {
  const std::string unit = "encoders.image.block", plugin = "plugin 'zoo'", item = "encoders.image",
                    layout = "layout()";
  const std::vector<Expected> table{
      {Sin::attends, {unit, plugin, "'block' uses ctx.attention", "mixes 'none'", "declare Mixes::attention"}},
      {Sin::attends_in_halo, {unit, plugin, "'block' uses ctx.attention", "mixes 'halo'"}},
      {Sin::sums, {unit, plugin, "'block' uses ctx.segment_sum", "mixes 'none'"}},
      {Sin::halos, {unit, plugin, "'block' uses ctx.halo", "mixes 'none'", "declare Mixes::halo"}},
      {Sin::wide, {unit, plugin, "stream 'features' was declared [rows, 8], found", "16]"}},
      {Sin::few_rows, {unit, plugin, "stream 'features' has", "rows, its partition '' has"}},
      {Sin::foreign_param, {unit, plugin, "embed.scale", "'block' reads it without having declared it"}},
      {Sin::no_output, {unit, plugin, "did not set its output stream 'features'"}},
      {Sin::throws, {unit, plugin, "first line"}},
      {Sin::cut_outside, {item, layout, "lies outside the item's"}},
      {Sin::cut_order, {item, layout, "cut 1 comes after 2"}},
      {Sin::uneven_partition, {item, layout, "partition 'pairs' has no row at cut 1"}},
      {Sin::wrong_count, {item, layout, "the default partition has", "measure() said"}},
      {Sin::bad_permutation, {item, layout, "permutation is not one of its"}},
  };
  for (const Expected& expected : table) {
    const ModelSpec spec = bad_model(expected.sin);
    for (const LayoutChoice& choice : layouts()) {
      const std::string who = concat("sin ", static_cast<int>(expected.sin), ", placing ",
                                     static_cast<int>(choice.placing), ", sp ", choice.encoder_sp);
      // Samples and plans of an encoder that says the truth about its items, so that only the model meets the sin.
      const RunData data = random_data(bad_model(Sin::attends), {}, {.seed = 31}, 1);
      const std::vector<StepPlan> plans = random_plans(bad_model(Sin::attends), {}, choice, data);
      int exit_code = 0;
      const std::vector<std::string> told = outcomes(spec, data, plans, &exit_code);
      expect_words(told, expected.words, who);
      EXPECT_EQ(exit_code, 3) << who << ": " << told.front();
      if (choice.world == 1) std::cout << "  " << told.front() << "\n";
    }
  }
}

TEST(LoopbackBadPlugins, PlanThatCutsWhereItMustNot) {
  const ModelSpec& spec = zoo_model("conv");
  const RunData data = random_data(spec, {}, {.seed = 32}, 1);
  std::vector<StepPlan> plans = random_plans(spec, {}, {.world = 2, .encoder_sp = 2}, data);
  PlacedItem& item = plans.front().microbatches.front().items.at("image").front();
  const int64_t rows = data[0][static_cast<size_t>(item.sample)].verdict.items[0].meta.tokens;
  item.pieces = {{0, 0, 3}, {1, 3, rows - 3}};
  int exit_code = 0;
  const std::vector<std::string> told = outcomes(spec, data, plans, &exit_code);
  expect_words(told, {"encoders.image", "divides it at row 3", "legal cuts, nearest 2"}, "a plan");
  EXPECT_EQ(exit_code, 3);
  std::cout << "  " << told.front() << "\n";
  try {
    check_plan(plans.front());
    FAIL() << "expected an InternalError";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("is cut at row 3 before rank 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace loom::test
