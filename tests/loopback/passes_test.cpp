// Encoder passes that serve one microbatch or several, early or in time, connectors on either side of the bridge, and
// embeddings that come by either path: losses, gradients, states and weights are those of one rank in one microbatch.
#include <gtest/gtest.h>

#include <iostream>

#include "core/base/error.h"
#include "tests/loopback/parity_case.h"

namespace loom::test {
namespace {

struct Way {
  const char* name;
  int macro;
  bool ahead;
  ConnectorSide side;
  BridgePath path;
  Placing placing;
  Mix mix;
  Balance balance{};
};

const Way kWays[] = {
    {"pairs", 2, false, ConnectorSide::encoder, BridgePath::exact, Placing::planner, Mix::mixed},
    {"whole step, symmetric", 0, false, ConnectorSide::encoder, BridgePath::symmetric, Placing::random, Mix::lopsided},
    {"ahead, at the slots",
     1,
     true,
     ConnectorSide::backbone,
     BridgePath::exact,
     Placing::planner,
     Mix::sparse,
     {2, true, true}},
    {"pairs ahead, symmetric at the slots", 2, true, ConnectorSide::backbone, BridgePath::symmetric, Placing::subsets,
     Mix::absent},
    {"threes, by traffic",
     3,
     false,
     ConnectorSide::fewer_bytes,
     BridgePath::by_traffic,
     Placing::planner,
     Mix::sparse,
     {1, true, true}},
    {"ahead on one rank", 1, true, ConnectorSide::fewer_bytes, BridgePath::symmetric, Placing::one_rank, Mix::lopsided},
};

ParityCase case_of(const ModelSpec& spec, const Way& way, int world) {
  ParityCase parity;
  parity.spec = &spec;
  parity.bind.dropout = 0.1;
  parity.bind.recompute = way.macro == 2;
  parity.data.mix = way.mix;
  parity.data.seed = static_cast<uint64_t>(world) + static_cast<uint64_t>(way.macro);
  parity.layout = {.world = world, .encoder_sp = 2, .backbone_sp = 2, .placing = way.placing, .balance = way.balance};
  parity.layout.microbatches = 4;
  parity.layout.macro = way.macro;
  parity.layout.ahead = way.ahead;
  parity.layout.side = way.side;
  parity.layout.bridge = {way.path, 0.5};
  return parity;
}

TEST(LoopbackPasses, ChangeNothing) {
  Exercised sum;
  int64_t passes = 0, served = 0, early = 0;
  for (const ModelSpec& spec : zoo_models()) {
    for (const Way& way : kWays) {
      for (const int world : {1, 4, 8}) {
        ParityCase parity = case_of(spec, way, world);
        if (world == 1) {
          parity.layout.encoder_sp = parity.layout.backbone_sp = 1;
          parity.layout.placing = Placing::planner;
          parity.layout.balance = {};
        }
        SCOPED_TRACE(concat(spec.name, ", ", way.name, ", world ", world));
        try {
          const RunData data = random_data(spec, parity.bind, parity.data);
          const std::vector<StepPlan> plans = random_plans(spec, parity.bind, parity.layout, data);
          for (const StepPlan& plan : plans) {
            for (const EncoderPass& pass : encoder_passes(plan)) {
              ++passes;
              early += pass.before < pass.first ? 1 : 0;
              for (size_t m = pass.first; m < pass.first + pass.count; ++m) {
                const auto found = plan.microbatches[m].items.find(pass.modality);
                served += found != plan.microbatches[m].items.end() && !found->second.empty() ? 1 : 0;
              }
            }
          }
          const RunRecord run = run_plans(spec, parity.bind, parity.layout, data, plans);
          EXPECT_EQ(run.disagreement, "");
          const Difference difference = compare(run_reference(spec, parity.bind, data), run);
          EXPECT_LE(difference.worst, tolerance(at::kDouble)) << difference.where;
          sum.worst_double = std::max(sum.worst_double, difference.worst);
          ++sum.cases;
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      }
    }
  }
  std::cout << "  " << sum.cases << " cases, " << passes << " passes for the items of " << served << " microbatches, "
            << early << " of them early; worst difference " << sum.worst_double << "\n";
  EXPECT_GT(served, passes * 5 / 4);
  EXPECT_GT(early, 100);
}

// Both paths give the same bits, forward and back, wherever the connector runs.
TEST(LoopbackPasses, PathsAgreeToTheBit) {
  int64_t cases = 0;
  for (const ModelSpec& spec : zoo_models()) {
    for (const ConnectorSide side : {ConnectorSide::encoder, ConnectorSide::backbone}) {
      for (const Placing placing : {Placing::planner, Placing::random}) {
        ParityCase parity = case_of(spec, kWays[0], 4);
        parity.layout.placing = placing;
        parity.layout.side = side;
        const RunData data = random_data(spec, parity.bind, parity.data);
        std::vector<StepPlan> plans = random_plans(spec, parity.bind, parity.layout, data);
        const RunRecord exact = run_plans(spec, parity.bind, parity.layout, data, plans);
        for (StepPlan& plan : plans) plan.layout.bridge.path = BridgePath::symmetric;
        const RunRecord symmetric = run_plans(spec, parity.bind, parity.layout, data, plans);
        EXPECT_EQ(compare(exact, symmetric).worst, 0) << spec.name;
        EXPECT_NE(exact.counters.bytes_sent, symmetric.counters.bytes_sent) << spec.name;
        ++cases;
      }
    }
  }
  std::cout << "  " << cases << " cases\n";
}

}  // namespace
}  // namespace loom::test
