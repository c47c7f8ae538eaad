// tokenizer.json: what is accepted is written and read again without a change, and encodes any bytes and back. A
// tokenizer that is always there sees the input as text, so that words are tried even when the JSON is broken.
#include "core/data/bpe_tokenizer.h"
#include "core/data/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loom;

BpeModel small_model() {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  const auto merge = [&](int32_t left, int32_t right) {
    const int32_t id = static_cast<int32_t>(model.tokens.size());
    model.tokens.push_back(model.tokens[static_cast<size_t>(left)] + model.tokens[static_cast<size_t>(right)]);
    model.merges.push_back({left, right, id});
    return id;
  };
  const int32_t th = merge('t', 'h'), the = merge(th, 'e'), space = merge(' ', the);
  merge(space, space);
  merge(0xc3, 0xa4);
  model.specials.push_back(static_cast<int32_t>(model.tokens.size()));
  model.tokens.emplace_back(kEndOfText);
  return model;
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int64_t> ids = tokenizer.encode(text);
  for (const int64_t id : ids)
    fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "an id lies outside the vocabulary");
  fuzz::require(tokenizer.decode(ids) == text, "decoding does not give the text back");
}

bool same(const BpeModel& a, const BpeModel& b) {
  if (a.tokens != b.tokens || a.specials != b.specials || a.merges.size() != b.merges.size()) return false;
  for (size_t i = 0; i < a.merges.size(); ++i) {
    const BpeMerge &x = a.merges[i], &y = b.merges[i];
    if (x.left != y.left || x.right != y.right || x.result != y.result) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  static const BpeTokenizer always(small_model(), "small");
  check_round_trip(always, bytes);
  fuzz::expect_parsed_or_refused([&] {
    BpeModel model = parse_tokenizer_json(bytes, "tokenizer.json");
    fuzz::require(same(model, parse_tokenizer_json(write_tokenizer_json(model), "written.json")),
                  "what was written reads differently");
    const BpeTokenizer tokenizer(std::move(model), "tokenizer.json");
    for (const std::string_view text : {bytes.substr(0, 300), std::string_view("ab abc\xff\xc3\xa4\n the  the")})
      check_round_trip(tokenizer, text);
  });
  return 0;
}
