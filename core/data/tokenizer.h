#pragma once
// Text to token ids and back. Special tokens are ids that no text can produce: encode() takes every text literally, so
// a caption that contains the spelling of a special token is just characters.
#include <cstdint>
#include <memory>
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
};

// "bytes". UserError with the nearest name otherwise.
std::unique_ptr<Tokenizer> make_tokenizer(const ConfigValue& config);

}  // namespace loom
