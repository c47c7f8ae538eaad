#pragma once
// What `omniloom data check` counts: per source, samples by fate, tokens, pictures, reasons; and the first epoch of
// training as the loader would make it. A sample leaves a few numbers behind, nothing else.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/data/loader.h"
#include "core/data/order.h"
#include "core/data/preparer.h"

namespace loom {

// One sample, read, prepared and dropped.
struct CheckedSample {
  bool ok = false;
  bool left_out = false;  // as the recipe asked
  bool stops = false;     // training would not go on behind it
  std::string name, reason;
  int64_t tokens = 0, supervised = 0;
  std::vector<std::pair<int64_t, int64_t>> pictures;  // height, width; as they were read
};

// Any thread. A mistake that would stop a run is a result, not an exception.
CheckedSample check_sample(const Preparer& preparer, const Source& source, int64_t index);

struct SkipGroup {
  std::string kind;  // the reason without names and numbers
  bool left_out = false, stops = false;
  int64_t count = 0;
  std::vector<std::string> examples;  // the first few, "name: reason"
};

class SourceStats {
 public:
  void add(const CheckedSample& sample);

  int64_t samples() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t usable() const { return usable_; }
  int64_t skipped() const { return skipped_; }  // those that would stop a run included
  int64_t left_out() const { return left_out_; }
  int64_t stopping() const { return stopping_; }
  int64_t tokens_of(int64_t index) const { return tokens_[static_cast<size_t>(index)]; }  // 0 = not usable
  const std::vector<SkipGroup>& groups() const { return groups_; }                        // in order of first sight
  // "12 min · 85 median · 212 p95 · 900 max · 103,441 in all", of usable samples.
  std::string tokens_text() const;
  std::string pictures_text() const;  // "1,190 · 28x28 smallest · 640x480 median · 4000x3000 largest"; "" without any
  std::string supervised_text() const;  // "23.4 % of tokens"

 private:
  std::vector<int64_t> tokens_;
  std::vector<std::pair<int64_t, int64_t>> pictures_;
  std::vector<SkipGroup> groups_;
  int64_t usable_ = 0, skipped_ = 0, left_out_ = 0, stopping_ = 0, supervised_ = 0, all_tokens_ = 0;
};

// The first epoch, as training on one rank would go over it.
struct EpochPlan {
  int64_t samples = 0, tokens = 0;  // usable
  int64_t packs = 0;                // microbatches
  double steps = 0;                 // with the share of the last one
};

EpochPlan plan_epoch(const SampleOrder& order, const BatchSize& batch, int64_t budget,
                     const std::function<int64_t(int source, int64_t index)>& tokens);

}  // namespace loom
