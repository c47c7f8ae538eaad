#include "core/data/bpe_tokenizer.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/data/pretokenizer.h"

namespace loom {

WordCache::WordCache() : slots_(kSlots) {}

bool WordCache::find(std::string_view word, std::vector<int64_t>& out) {
  if (word.size() > sizeof Slot::word) return false;
  const size_t place = std::hash<std::string_view>()(word) % kSlots;
  const std::lock_guard<std::mutex> guard(locks_[place % kLocks]);
  const Slot& slot = slots_[place];
  if (slot.size != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) return false;
  out.insert(out.end(), slot.ids, slot.ids + slot.count);
  return true;
}

void WordCache::keep(std::string_view word, const int64_t* ids, size_t count) {
  if (word.size() > sizeof Slot::word || count > std::size(Slot().ids)) return;
  const size_t place = std::hash<std::string_view>()(word) % kSlots;
  const std::lock_guard<std::mutex> guard(locks_[place % kLocks]);
  Slot& slot = slots_[place];
  slot.size = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(count);
  std::memcpy(slot.word, word.data(), word.size());
  for (size_t i = 0; i < count; ++i) slot.ids[i] = static_cast<int32_t>(ids[i]);
}

BpeTokenizer::BpeTokenizer(BpeModel model, const std::string& name) : model_(std::move(model)), merger_(model_) {
  is_special_.resize(model_.tokens.size());
  for (const int32_t id : model_.specials) is_special_[static_cast<size_t>(id)] = 1;
  const std::optional<int64_t> begin = special(kTextBegin), end = special(kTextEnd), text = special(kEndOfText);
  LOOM_CHECK_USER((begin && end) || text, name, ": added_tokens: needs ", kEndOfText, ", or ", kTextBegin, " and ",
                  kTextEnd);
  bos_ = begin && end ? *begin : *text;
  eos_ = begin && end ? *end : *text;
  // A token is not always what its own bytes become, so each is tried once.
  std::vector<int64_t> ids;
  whole_.reserve(model_.tokens.size());
  for (size_t id = 0; id < model_.tokens.size(); ++id) {
    if (is_special_[id]) continue;
    ids.clear();
    merger_.apply(model_.tokens[id], ids);
    if (ids.size() == 1) whole_.emplace(model_.tokens[id], static_cast<int32_t>(id));
  }
}

std::vector<int64_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> out;
  out.reserve(text.size() / 4 + 8);
  Pretokens words(text);
  for (std::string_view word; words.next(word);) {
    if (const auto found = whole_.find(word); found != whole_.end()) {
      out.push_back(found->second);
      continue;
    }
    if (cache_.find(word, out)) continue;
    const size_t before = out.size();
    merger_.apply(word, out);
    cache_.keep(word, out.data() + before, out.size() - before);
  }
  return out;
}

std::string BpeTokenizer::decode(const std::vector<int64_t>& tokens) const {
  std::string out;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocab_size() || is_special_[static_cast<size_t>(token)]) continue;
    out += model_.tokens[static_cast<size_t>(token)];
  }
  return out;
}

std::optional<int64_t> BpeTokenizer::special(std::string_view spelling) const {
  for (const int32_t id : model_.specials) {
    if (model_.tokens[static_cast<size_t>(id)] == spelling) return id;
  }
  return std::nullopt;
}

std::string BpeTokenizer::spelling(int64_t token) const {
  return token >= 0 && token < vocab_size() ? model_.tokens[static_cast<size_t>(token)] : "";
}

}  // namespace loom
