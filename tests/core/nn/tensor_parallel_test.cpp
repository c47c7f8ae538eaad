// Tensor parallelism below the layers: which parts of a parameter a rank holds, and the two moves of rows, which are
// each other's adjoint and send exactly what the formulas say.
#include "core/nn/tensor_parallel.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/nn/linear.h"
#include "core/nn/mlp.h"
#include "core/nn/self_attention.h"
#include "tests/core/nn/split_items.h"

namespace loom::test {
namespace {

// The declarations of a layer in a unit of its own.
template <class Layer, class... Args>
Declarations declared(Args&&... args) {
  Declarations out;
  out.component = "backbone";
  UnitDecl unit;
  unit.name = "block";
  const Layer layer(Declarer(out).unit(unit).child("layer"), std::forward<Args>(args)...);
  return out;
}

void expect_whole(const Declarations& declarations, int ranks) {
  for (const ParamDecl& param : declarations.params) {
    if (param.split == Split::none) continue;
    std::vector<Box> boxes;
    int64_t least = param.numel(), most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t held = 0;
      for (const Box& box : split_boxes(param, {ranks, rank})) {
        held += box.numel();
        boxes.push_back(box);
      }
      least = std::min(least, held);
      most = std::max(most, held);
    }
    EXPECT_TRUE(tiles(boxes, whole_box(param.shape))) << param.name << " over " << ranks;
    EXPECT_GT(least, 0) << param.name << " over " << ranks;
    EXPECT_LT(most, param.numel()) << param.name << " over " << ranks;
  }
}

TEST(TensorParallel, RanksHoldEveryElementOnce) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{{9, 3}, {28, 4}, {3, 3}, {32, 8}}) {
    SelfAttentionOptions options;
    options.width = heads * 8;
    options.heads = heads;
    options.kv_heads = kv_heads;
    const Declarations attention = declared<SelfAttention>(options);
    EXPECT_EQ(split_limit(attention).ranks, kv_heads);
    for (int ranks = 2; ranks <= std::min<int64_t>(kv_heads, 4); ++ranks) expect_whole(attention, ranks);
  }
  for (int ranks = 2; ranks <= 7; ++ranks) {
    expect_whole(declared<SwiGlu>(16, 11), ranks);
    expect_whole(declared<GeluMlp>(GeluMlpOptions{.in = 16, .hidden = 13}), ranks);
  }
}

// Query heads lie with their KV group on every rank, in the order q, k, v.
TEST(TensorParallel, HeadsStayWithTheirGroup) {
  SelfAttentionOptions options;
  options.width = 72;
  options.heads = 9;
  options.kv_heads = 3;
  const Declarations attention = declared<SelfAttention>(options);
  const std::vector<Box> first = split_boxes(attention.params.at(0), {2, 0});
  const std::vector<Box> second = split_boxes(attention.params.at(0), {2, 1});
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].str(), "[0:24, 0:72]");
  EXPECT_EQ(first[1].str(), "[72:80, 0:72]");
  EXPECT_EQ(first[2].str(), "[96:104, 0:72]");
  EXPECT_EQ(second[0].str(), "[24:72, 0:72]");
  EXPECT_EQ(second[1].str(), "[80:96, 0:72]");
}

TEST(TensorParallel, TheLimitNamesWhatSetsIt) {
  const SplitLimit limit = split_limit(declared<SwiGlu>(16, 3));
  EXPECT_EQ(limit.ranks, 3);
  EXPECT_EQ(limit.param, "backbone.block.layer.gate_up.weight#gate");
  EXPECT_EQ(split_limit(declared<Linear>(4, 4, LinearOptions{})).ranks, 0);
  Declarations odd;
  odd.component = "backbone";
  UnitDecl unit;
  unit.name = "block";
  LinearOptions options;
  options.split = Split::column;
  options.parts = {{"a", 2, Split::column, 1}, {"b", 2, Split::none, 1}};
  const Linear linear(Declarer(odd).unit(unit), 4, 4, options);
  EXPECT_THROW(split_limit(odd), PluginError);
}

struct Sides {
  double gathered = 0, summed = 0;  // <gather x, y> and <x, sum y>, of all ranks
};

// On random items: adjointness, the gradients of each, and bytes.
TEST(TensorParallel, GatherAndSumAreAdjointAndSendTheirFormulas) {
  constexpr int64_t kWidth = 3;
  const Philox random({5, Purpose::sample});
  uint64_t at = 0;
  int64_t cases = 0;
  for (const auto& [world, tp] : std::vector<std::pair<int, int>>{{2, 2}, {4, 2}, {4, 4}, {6, 3}, {8, 4}}) {
    for (int round = 0; round < 6; ++round, ++cases) {
      const std::vector<StreamItem> items = random_items(random, at, world, 1);
      const Tensor x_all = at::randn({rows_in(items), kWidth}, at::kDouble);
      std::vector<Sides> sides(static_cast<size_t>(world));
      run_loopback(world, [&, tp = tp](Communicator& comm) {
        const TensorGroup tensor{tp, comm.rank() % tp};
        const GroupPartitions groups = group_partitions(items, comm.rank(), tp);
        const GroupRows& rows = groups.at("");
        Ranked ranked(items, items, comm);
        ranked.state().tensor = &tensor;
        ranked.state().groups = &groups;
        UnitContext ctx = ranked.context();
        const Tensor x = rows_here(x_all, items, comm.rank());
        comm.reset_counts();
        const Tensor all = ctx.gather_rows(x);
        EXPECT_EQ(comm.bytes_sent(), (tp - 1) * x.nbytes());
        // The group's rows in the order of items.
        int64_t row = 0;
        for (const PlacedRows& run : placed_rows(items, "")) {
          if (run.rank / tp != comm.rank() / tp) continue;
          row += run.rows;
        }
        ASSERT_EQ(all.size(0), row);
        ASSERT_EQ(all.size(0), rows.segments.rows());
        const Tensor y = at::randn(all.sizes(), at::kDouble).requires_grad_();
        comm.reset_counts();
        const Tensor sums = ctx.sum_rows(y);
        EXPECT_EQ(comm.bytes_sent(), static_cast<int64_t>(all.nbytes() - x.nbytes()));
        Sides& mine = sides[static_cast<size_t>(comm.rank())];
        mine.gathered = (all * y).sum().item<double>();
        mine.summed = (x * sums).sum().item<double>();
        (all * y.detach()).sum().backward();
        EXPECT_TRUE(at::allclose(x.grad(), sums.detach(), 1e-12, 1e-12));
        (sums * x.detach()).sum().backward();
        EXPECT_TRUE(at::equal(y.grad(), all.detach()));
      });
      double gathered = 0, summed = 0;
      for (const Sides& side : sides) {
        gathered += side.gathered;
        summed += side.summed;
      }
      EXPECT_NEAR(gathered, summed, 1e-10 * (1 + std::abs(gathered)));
    }
  }
  EXPECT_EQ(cases, 30);
}

}  // namespace
}  // namespace loom::test
