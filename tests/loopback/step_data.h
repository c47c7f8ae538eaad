#pragma once
// Random steps: prepared samples with several items of mixed sizes, and plans that place them on ranks: the planner's
// own, or ones that cut and scatter as wildly as the contracts allow.
#include <string>
#include <vector>

#include "core/data/sample.h"
#include "core/model/multimodal_model.h"
#include "core/step/step_plan.h"

namespace loom::test {

// Which samples have items.
enum class Mix {
  mixed = 1,  // most, of any modality
  sparse,     // few samples have any; with several microbatches the last one has none
  lopsided,   // a sample has one modality alone
  absent,     // the second step has none at all
};

struct DataChoice {
  uint64_t seed = 1;
  int64_t samples = 7;
  Mix mix = Mix::mixed;
  bool supervised = true;  // false: no token is
  int64_t longest_text = 12;
};

// Where rows go.
enum class Placing {
  planner = 1,  // make_step_plan
  random,       // pieces at legal cuts on any ranks
  subsets,      // encoders and backbone each on a random part of the ranks; the others have no rows
  one_rank,     // all items on one rank, all samples on one
};

struct LayoutChoice {
  int world = 1;
  int encoder_shard = 0, connector_shard = 0, backbone_shard = 0;
  int encoder_sp = 1, backbone_sp = 1;
  int encoder_tile = 0, backbone_tile = 0;                // see ComponentLayout
  int encoder_tp = 1, connector_tp = 1, backbone_tp = 1;  // of components that have as many parts
  Placing placing = Placing::planner;
  Balance balance{};  // by the planner
  int64_t microbatches = 1;
  uint64_t seed = 1;
  uint64_t delays = 0;
  int macro = 1;  // of encoders
  bool ahead = false;
  ConnectorSide side = ConnectorSide::fewer_bytes;
  BridgeChoice bridge{};
};

// Samples of one step; `model` answers for the encoders.
std::vector<PreparedSample> random_samples(const MultimodalModel& model, const DataChoice& choice, int64_t step);

WorldLayout world_layout(const MultimodalModel& model, const LayoutChoice& choice);
StepPlan random_plan(const std::vector<PreparedSample>& samples, int64_t step, const LayoutChoice& choice,
                     const WorldLayout& layout);
// Everything in one microbatch on one rank.
StepPlan single_plan(const std::vector<PreparedSample>& samples, int64_t step);

// What a plan exercises.
struct PlanFacts {
  bool splits_samples = false, idle_ranks = false, moves_embeddings = false;
  bool idle_groups = false;         // all ranks of a tensor group have no rows
  bool splits_over_groups = false;  // something lies on several tensor groups, which attend to it together
  bool microbatch_without_items = false, microbatch_without_rows = false;
  std::vector<std::string> splits_items{};  // modalities
};
PlanFacts facts_of(const StepPlan& plan);

}  // namespace loom::test
