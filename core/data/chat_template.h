#pragma once
// How turns of a conversation are spelled in tokens: ChatML,
//   <|im_start|>user\n ... <|im_end|>\n<|im_start|>assistant\n ... <|im_end|>\n
// with neither begin nor end of text around it. The borders are special tokens, which no text of a user can produce.
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/tokenizer.h"

namespace loom {

class ChatTemplate {
 public:
  explicit ChatTemplate(const Tokenizer& tokenizer);

  // UserError when the tokenizer lacks the special tokens that turns need.
  void check() const;
  std::vector<int64_t> turn_begin(const std::string& role) const;    // <|im_start|> role \n
  int64_t turn_end() const { return end_; }                          // <|im_end|>, learned with the answer before it
  const std::vector<int64_t>& after_turn() const { return after_; }  // \n, never learned

 private:
  const Tokenizer& tokenizer_;
  int64_t begin_ = -1, end_ = -1;
  std::vector<int64_t> after_;
};

}  // namespace loom
