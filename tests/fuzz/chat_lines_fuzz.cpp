// A file of chat samples: found in the bytes, in one piece and in many, then each read into turns, text and media.
#include <algorithm>

#include "core/base/error.h"
#include "core/data/chat_messages.h"
#include "core/data/text_scanner.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace loom;

// The ranges, or the message, as one text.
std::string scan(std::string_view bytes, size_t chunk, std::vector<TextRange>& ranges) {
  try {
    TextScanner scanner("fuzz.jsonl");
    for (size_t at = 0; at < bytes.size(); at += chunk) scanner.feed(bytes.substr(at, chunk));
    ranges = scanner.finish();
  } catch (const UserError& error) {
    return error.what();
  }
  std::string out;
  for (const TextRange& range : ranges) out += concat(range.begin, "+", range.length, ":", range.line, " ");
  return out;
}

void check_parts(const std::vector<SamplePart>& parts) {
  using Kind = SamplePart::Kind;
  const auto is_turn = [](const SamplePart& part) {
    return part.kind == Kind::turn_begin || part.kind == Kind::turn_end;
  };
  const bool turns = std::any_of(parts.begin(), parts.end(), is_turn);
  bool inside = false;
  for (const SamplePart& part : parts) {
    if (part.kind == Kind::turn_begin || part.kind == Kind::turn_end) {
      fuzz::require(inside == (part.kind == Kind::turn_end), "turns begin and end in pairs");
      inside = !inside;
    } else {
      fuzz::require(inside == turns, "a conversation is made of turns only");
    }
    fuzz::require(part.kind != Kind::media || !part.text.empty(), "media has a reference");
  }
  fuzz::require(!inside, "the last turn ends");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  std::vector<TextRange> ranges, others;
  const std::string whole = scan(bytes, std::max<size_t>(size, 1), ranges);
  fuzz::require(whole == scan(bytes, 4 + size % 7, others), "samples depend on how the file is cut into chunks");
  fuzz::expect_parsed_or_refused([&] {
    TextScanner scanner("fuzz.jsonl");
    scanner.feed(bytes);
    scanner.finish();
  });
  for (const TextRange& range : ranges) {
    fuzz::require(range.begin + range.length <= size && range.line > 0, "a sample lies in its file");
    fuzz::expect_parsed_or_refused([&] { check_parts(parse_chat(bytes.substr(range.begin, range.length))); });
  }
  return 0;
}
