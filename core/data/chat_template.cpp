#include "core/data/chat_template.h"

#include "core/base/error.h"

namespace loom {

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      begin_(tokenizer.special(kTurnBegin).value_or(-1)),
      end_(tokenizer.special(kTurnEnd).value_or(-1)),
      after_(tokenizer.encode("\n")) {}

void ChatTemplate::check() const {
  LOOM_CHECK_USER(
      begin_ >= 0 && end_ >= 0, "data.tokenizer has no special token ", begin_ < 0 ? kTurnBegin : kTurnEnd,
      ", which conversations need; `omniloom data tokenizer` makes a tokenizer that has it, and bytes has it");
}

std::vector<int64_t> ChatTemplate::turn_begin(const std::string& role) const {
  std::vector<int64_t> out = {begin_};
  const std::vector<int64_t> name = tokenizer_.encode(role + "\n");
  out.insert(out.end(), name.begin(), name.end());
  return out;
}

}  // namespace loom
