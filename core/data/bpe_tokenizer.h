#pragma once
// Byte-level BPE, as GPT-2 and most language models since use it: any text, no unknown token, and the exact bytes back.
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/data/bpe_merger.h"
#include "core/data/bpe_model.h"
#include "core/data/tokenizer.h"

namespace loom {

// Words and their ids, of a fixed size: a word has one slot and takes it from whoever has it. Small, no allocation, and
// threads meet only at one of 64 locks.
class WordCache {
 public:
  WordCache();
  // Appends the ids of a word that is here.
  bool find(std::string_view word, std::vector<int64_t>& out);
  void keep(std::string_view word, const int64_t* ids, size_t count);

 private:
  static constexpr size_t kSlots = 16384, kLocks = 64;
  struct Slot {
    uint8_t size = 0, count = 0;
    char word[54] = {};
    int32_t ids[18] = {};
  };
  std::vector<Slot> slots_;
  std::array<std::mutex, kLocks> locks_;
};

class BpeTokenizer : public Tokenizer {
 public:
  // UserError, beginning with `name`, when the model has neither <|endoftext|> nor <|begin|> and <|end|>.
  BpeTokenizer(BpeModel model, const std::string& name);
  BpeTokenizer(const BpeTokenizer&) = delete;
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  std::vector<int64_t> encode(std::string_view text) const override;
  std::string decode(const std::vector<int64_t>& tokens) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(model_.tokens.size()); }
  int64_t bos() const override { return bos_; }
  int64_t eos() const override { return eos_; }
  std::optional<int64_t> special(std::string_view spelling) const override;
  std::string spelling(int64_t token) const override;

  const BpeModel& model() const { return model_; }

 private:
  BpeModel model_;
  BpeMerger merger_;
  std::vector<uint8_t> is_special_;                      // by id
  std::unordered_map<std::string_view, int32_t> whole_;  // words that are one token, almost all of a text; only read
  mutable WordCache cache_;                              // of the others
  int64_t bos_ = 0, eos_ = 0;
};

inline constexpr std::string_view kEndOfText = "<|endoftext|>", kTextBegin = "<|begin|>", kTextEnd = "<|end|>";

}  // namespace loom
