#pragma once
// Learns a byte-level BPE vocabulary: all 256 bytes, then one token per merge of the pair that stands most often in the
// words, then the special tokens.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/data/bpe_model.h"
#include "core/data/word_counter.h"

namespace loom {

struct BpeTrainOptions {
  int64_t vocab_size = 8192;  // at most; bytes and special tokens included
  int64_t min_frequency = 2;  // a pair that stands less often is not merged
  std::vector<std::string> specials;
};

// Equal counts give equal vocabularies: of pairs that are equally frequent the one with the smaller left id is merged
// first, then the one with the smaller right id. `progress` gets tokens made and wanted, now and then, and may throw.
// UserError when a special token is empty, given twice or the spelling of a byte, or vocab_size has no room for them.
BpeModel train_bpe(const WordCounts& counts, const BpeTrainOptions& options,
                   const std::function<void(int64_t made, int64_t wanted)>& progress = {});

// How many tokens the counted texts are.
int64_t count_tokens(const WordCounts& counts, const BpeModel& model);

}  // namespace loom
