#pragma once
// Text to token ids and back. Special tokens are ids that no text can produce: encode() takes every text literally, so
// a caption that contains the spelling of a special token is just characters.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_value.h"

namespace loom {

class Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;      // no special tokens
  virtual std::string decode(const std::vector<int64_t>& tokens) const = 0;  // special tokens vanish
  virtual int64_t vocab_size() const = 0;                                    // ids, special ones included
  virtual int64_t bos() const = 0;
  virtual int64_t eos() const = 0;
  // The id of a special token by its spelling: "<|im_start|>"; nothing when there is none.
  virtual std::optional<int64_t> special(std::string_view spelling) const = 0;
  // What a token stands for, for people: the bytes of an ordinary one, the spelling of a special one.
  virtual std::string spelling(int64_t token) const = 0;
  // Tokens that end an answer: eos, and the end of a turn where there is one.
  std::vector<int64_t> ends() const;
};

inline constexpr std::string_view kTurnBegin = "<|im_start|>", kTurnEnd = "<|im_end|>";  // ChatML

// "bytes", or the path of a tokenizer.json. UserError with the nearest name otherwise.
std::unique_ptr<Tokenizer> make_tokenizer(const ConfigValue& config);

}  // namespace loom
