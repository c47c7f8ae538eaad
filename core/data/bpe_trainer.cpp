// The usual way: an index from pairs to the words that hold them, and a heap whose entries may be too high, never too
// low. An entry is looked at when it comes up: if its pair has become rarer since, it goes back with the true count.
#include "core/data/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/bpe_merger.h"

namespace loom {
namespace {

using Pair = uint64_t;  // left id above right id, so that smaller pairs are smaller numbers

Pair pair_of(int32_t left, int32_t right) {
  return static_cast<Pair>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct PairHash {
  size_t operator()(Pair pair) const { return static_cast<size_t>((pair * 0x9e3779b97f4a7c15u) >> 17); }
};

struct Entry {
  int64_t count;
  Pair pair;
  bool operator<(const Entry& other) const { return count != other.count ? count < other.count : pair > other.pair; }
};

struct PairState {
  int64_t count = 0;
  std::vector<uint32_t> words;  // that may hold the pair
};

struct Word {
  size_t begin = 0;  // in the array of symbols
  uint32_t size = 0;
  int64_t count = 0;
};

class Training {
 public:
  Training(const WordCounts& counts, BpeModel& model, std::unordered_set<std::string> taken)
      : model_(model), taken_(std::move(taken)) {
    for (const auto& [text, count] : counts.words) {
      if (text.size() < 2) continue;
      words_.push_back({symbols_.size(), static_cast<uint32_t>(text.size()), count});
      for (const char byte : text) symbols_.push_back(static_cast<unsigned char>(byte));
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      const int32_t* symbols = symbols_.data() + words_[w].begin;
      for (uint32_t i = 0; i + 1 < words_[w].size; ++i) change(pair_of(symbols[i], symbols[i + 1]), w, words_[w].count);
    }
    for (const auto& [pair, state] : pairs_) heap_.push({state.count, pair});
  }

  // Adds one merge; false when no pair is frequent enough.
  bool step(int64_t min_frequency) {
    while (!heap_.empty()) {
      const Entry top = heap_.top();
      const auto found = pairs_.find(top.pair);
      const int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count && count < std::max<int64_t>(min_frequency, 1)) return false;
      heap_.pop();
      if (count != top.count) {
        if (count > 0 && count < top.count) heap_.push({count, top.pair});
        continue;
      }
      if (merge(top.pair)) return true;
    }
    return false;
  }

 private:
  void change(Pair pair, size_t word, int64_t by) {
    PairState& state = pairs_[pair];
    state.count += by;
    if (by > 0 && (state.words.empty() || state.words.back() != word))
      state.words.push_back(static_cast<uint32_t>(word));
  }

  bool merge(Pair pair) {
    const auto left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair & 0xffffffffu);
    const std::string bytes = model_.tokens[static_cast<size_t>(left)] + model_.tokens[static_cast<size_t>(right)];
    const std::vector<uint32_t> words = std::move(pairs_[pair].words);
    if (taken_.count(visible_bytes(bytes)) != 0) {  // would be spelled like a special token
      pairs_.erase(pair);
      return false;
    }
    // No two pairs make the same bytes: what becomes of some bytes, when no merge crosses their ends, is decided by the
    // merges before.
    const auto result = static_cast<int32_t>(model_.tokens.size());
    model_.tokens.push_back(bytes);
    model_.merges.push_back({left, right, result});
    grown_.clear();
    for (const uint32_t word : words) merge_in(word, left, right, result);
    pairs_.erase(pair);
    for (const Pair grown : grown_) {
      const auto found = pairs_.find(grown);
      if (found != pairs_.end() && found->second.count > 0) heap_.push({found->second.count, grown});
    }
    return true;
  }

  void merge_in(size_t w, int32_t left, int32_t right, int32_t result) {
    Word& word = words_[w];
    int32_t* symbols = symbols_.data() + word.begin;
    uint32_t to = 0;
    for (uint32_t from = 0; from < word.size; ++to) {
      if (symbols[from] != left || from + 1 == word.size || symbols[from + 1] != right) {
        symbols[to] = symbols[from++];
        continue;
      }
      if (to > 0) replace(pair_of(symbols[to - 1], left), pair_of(symbols[to - 1], result), w, word.count);
      if (from + 2 < word.size)
        replace(pair_of(right, symbols[from + 2]), pair_of(result, symbols[from + 2]), w, word.count);
      symbols[to] = result;
      from += 2;
    }
    word.size = to;
  }

  void replace(Pair old, Pair fresh, size_t word, int64_t count) {
    change(old, word, -count);
    change(fresh, word, count);
    grown_.insert(fresh);
  }

  BpeModel& model_;
  std::unordered_set<std::string> taken_;
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Entry> heap_;
  std::unordered_set<Pair, PairHash> grown_;  // by the present merge
};

void check_specials(const BpeTrainOptions& options) {
  std::unordered_set<std::string> seen;
  for (const std::string& special : options.specials) {
    LOOM_CHECK_USER(!special.empty() && valid_utf8(special), "special token ", quote_text(special),
                    ": expected some UTF-8 text");
    LOOM_CHECK_USER(seen.insert(special).second, "special token ", quote_text(special), " is given twice");
    std::string bytes;
    LOOM_CHECK_USER(!bytes_of_visible(special, bytes) || bytes.size() > 1, "special token ", quote_text(special),
                    " is how the file spells a byte; choose a longer one");
  }
  const int64_t least = 256 + static_cast<int64_t>(options.specials.size());
  constexpr int64_t kMost = 16'000'000;
  LOOM_CHECK_USER(options.vocab_size >= least && options.vocab_size <= kMost, "vocabulary of ", options.vocab_size,
                  ": expected ", least, " (256 bytes, ", options.specials.size(), " special tokens) to ",
                  with_commas(kMost));
}

}  // namespace

BpeModel train_bpe(const WordCounts& counts, const BpeTrainOptions& options,
                   const std::function<void(int64_t, int64_t)>& progress) {
  check_specials(options);
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  Training training(counts, model, {options.specials.begin(), options.specials.end()});
  const auto wanted = static_cast<size_t>(options.vocab_size) - options.specials.size();
  while (model.tokens.size() < wanted && training.step(options.min_frequency)) {
    if (progress && model.merges.size() % 64 == 0)
      progress(static_cast<int64_t>(model.tokens.size()), static_cast<int64_t>(wanted));
  }
  if (progress) progress(static_cast<int64_t>(model.tokens.size()), static_cast<int64_t>(wanted));
  for (const std::string& special : options.specials) {
    model.specials.push_back(static_cast<int32_t>(model.tokens.size()));
    model.tokens.push_back(special);
  }
  return model;
}

int64_t count_tokens(const WordCounts& counts, const BpeModel& model) {
  const BpeMerger merger(model);
  int64_t out = 0;
  std::vector<int64_t> ids;
  for (const auto& [word, count] : counts.words) {
    ids.clear();
    merger.apply(word, ids);
    out += count * static_cast<int64_t>(ids.size());
  }
  return out;
}

}  // namespace loom
