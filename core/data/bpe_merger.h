#pragma once
// The merges of a BPE vocabulary applied to one word: again and again the pair of neighbours whose merge stands first
// in the list, the leftmost of equals. Short words are scanned; long ones use a heap, so that a word of n bytes costs
// n log n.
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/data/bpe_model.h"

namespace loom {

class BpeMerger {
 public:
  explicit BpeMerger(const BpeModel& model);  // every byte is a token of the model

  // Appends the ids of one word. Any thread.
  void apply(std::string_view word, std::vector<int64_t>& out) const;

 private:
  struct Row {
    uint64_t pair = kNone;
    uint32_t rank = kNever;
    int32_t result = 0;
  };
  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr uint32_t kNever = ~uint32_t{0};

  const Row& find(int32_t left, int32_t right) const;
  void apply_short(std::string_view word, std::vector<int64_t>& out) const;
  void apply_long(std::string_view word, std::vector<int64_t>& out) const;

  std::vector<Row> rows_;  // open addressing; a power of two, at most half full
  int shift_ = 0;
  Row nothing_;
  int32_t byte_ids_[256] = {};
};

}  // namespace loom
