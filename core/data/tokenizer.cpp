// The byte tokenizer: 256 bytes, then special tokens. No vocabulary file, any language, any string. And the one place
// where a recipe's word for a tokenizer becomes one.
#include "core/data/tokenizer.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/source.h"
#include "core/data/tokenizer_json.h"

namespace loom {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> out;
    out.reserve(text.size());
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }
  std::string decode(const std::vector<int64_t>& tokens) const override {
    std::string out;
    for (const int64_t token : tokens) {
      if (token >= 0 && token < kBytes) out += static_cast<char>(token);
    }
    return out;
  }
  int64_t vocab_size() const override { return kBytes + static_cast<int64_t>(std::size(kSpecials)); }
  int64_t bos() const override { return kBytes; }
  int64_t eos() const override { return kBytes + 1; }
  std::optional<int64_t> special(std::string_view spelling) const override {
    const auto found = std::find(std::begin(kSpecials), std::end(kSpecials), spelling);
    if (found == std::end(kSpecials)) return std::nullopt;
    return kBytes + (found - std::begin(kSpecials));
  }
  std::string spelling(int64_t token) const override {
    if (token >= 0 && token < kBytes) return std::string(1, static_cast<char>(token));
    return token >= kBytes && token < vocab_size() ? std::string(kSpecials[token - kBytes]) : "";
  }

 private:
  static constexpr int64_t kBytes = 256;
  static constexpr std::string_view kSpecials[] = {"<|begin|>", "<|end|>", kTurnBegin, kTurnEnd};
};

}  // namespace

Tokenizer::~Tokenizer() = default;

std::vector<int64_t> Tokenizer::ends() const {
  std::vector<int64_t> out{eos()};
  if (const auto turn = special(kTurnEnd); turn.has_value() && *turn != eos()) out.push_back(*turn);
  return out;
}

std::unique_ptr<Tokenizer> make_tokenizer(const ConfigValue& config) {
  const std::string& name = config.as_string();
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (name.ends_with(".json")) return read_tokenizer_json(name, said_at(config));
  throw UserError(concat(said_at(config), "no tokenizer ", quote_text(name), did_you_mean(name, {"bytes"}),
                         " (there is: bytes, or the path of a tokenizer.json)"));
}

}  // namespace loom
