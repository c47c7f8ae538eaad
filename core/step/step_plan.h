#pragma once
// The plan of one optimizer step: which samples, which microbatch each one is packed into, who holds which rows of it,
// which items their encoders see and who encodes them, and the global denominators. Made from verdicts alone, equal on
// every rank, so nobody has to agree on anything during the step (design, idea 6).
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/step/item_layout.h"
#include "core/step/world_layout.h"

namespace loom {

// A media item inside a sample: `slots` consecutive rows of the sample, from `begin`, are replaced by its embeddings.
struct ItemPlace {
  std::string modality;
  ItemMeta meta;
  int64_t begin = 0;  // -1: not in the text; the embeddings are rows of a stream of their own (cross attention)
  int64_t slots = 0;
  std::vector<int64_t> cuts{};  // rows at which the encoder's rows may be divided over ranks; empty = nowhere
};

// What the owner of a sample says once it has decoded and prepared it. Pure metadata.
struct Verdict {
  uint64_t position = 0;  // index in the recipe's endless order of samples
  uint64_t sample = 0;    // key of the sample; randomness and journal use it
  std::string name;       // for people: "train.0#1234"
  bool ok = true;
  std::string reason;      // why it was skipped
  int64_t tokens = 0;      // rows in the backbone
  int64_t supervised = 0;  // rows with a target
  double cost = 0;         // of the backbone's forward; 0 = as many as tokens
  std::vector<ItemPlace> items;
};

// Rows [begin, begin + rows) of an item (in its default partition) or of a sample, on a rank.
struct Piece {
  int rank = 0;
  int64_t begin = 0, rows = 0;
};

// A sample in the backbone; pieces in row order, covering it.
struct PlacedSample {
  int64_t sample = 0;  // index into StepPlan::samples
  std::vector<Piece> pieces;
};

// An item in its encoder; pieces in row order, covering it.
struct PlacedItem {
  int64_t sample = 0;  // index into StepPlan::samples
  int64_t item = 0;    // index into Verdict::items
  std::vector<Piece> pieces;
};

// One microbatch of all lanes. Rows lie one after another on each rank in the order of these lists.
struct MicrobatchPlan {
  std::vector<PlacedSample> samples;
  std::map<std::string, std::vector<PlacedItem>> items;  // by modality; absent = none anywhere
  int64_t tokens = 0;                                    // of all lanes
};

struct StepPlan {
  int64_t step = 0;  // from 1
  WorldLayout layout;
  std::vector<Verdict> samples;              // in sample order, all ok
  std::vector<MicrobatchPlan> microbatches;  // each lane takes part in every one, with or without rows
  int64_t budget = 0;                        // tokens per lane and microbatch
  int64_t supervised = 0;                    // global count: denominator of the next-token loss
  int64_t tokens = 0;
  uint64_t next_position = 0;  // where the following step continues
};

// Items of one modality that go through encoder and connector together: those of microbatches [first, first + count).
struct EncoderPass {
  std::string modality;
  size_t first = 0, count = 1;
  size_t before = 0;  // it runs before the backbone of this microbatch: `first`, or one earlier
  size_t last = 0;    // its backward follows that of this microbatch, the last one with items
};
// The passes of a step that have items, in the order in which they run.
std::vector<EncoderPass> encoder_passes(const StepPlan& plan);

// Completes a plan from ok verdicts in sample order: packs (core/step/pack_samples.h), slices each lane's rows over its
// ranks, and assigns the items of every pass to ranks (assign_items).
StepPlan make_step_plan(int64_t step, std::vector<Verdict> samples, int64_t budget, uint64_t next_position,
                        const WorldLayout& layout = {});

// Gives the items of a pass their pieces (core/step/spread_items.h). An item's home is the rank that wants its first
// embedding.
void assign_items(StepPlan& plan, const EncoderPass& pass);

// InternalError, with sample and rank, when a plan does not cover every row once, or cuts an item where it must not be.
void check_plan(const StepPlan& plan);

}  // namespace loom
