#include "pipelines/answers.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/data/idx_source.h"

namespace loom {
namespace {

using Kind = SamplePart::Kind;

// Bytes of the character that begins with this byte; 0 for a byte that begins none.
size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte >= 0xc2 && byte < 0xe0) return 2;
  if (byte >= 0xe0 && byte < 0xf0) return 3;
  return byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Where the answer begins: behind the last turn_begin of an assistant, or at the run of learned text that ends a sample
// without turns. The number of parts when there is none.
size_t answer_part(const std::vector<SamplePart>& parts) {
  size_t begin = parts.size();
  if (!parts.empty() && (parts.back().kind == Kind::turn_end || parts.back().kind == Kind::turn_begin)) {
    while (begin > 0 && parts[begin - 1].kind != Kind::turn_begin) --begin;
    return begin > 0 && parts[begin - 1].text == "assistant" ? begin : parts.size();
  }
  while (begin > 0 && parts[begin - 1].kind == Kind::text && parts[begin - 1].supervised) --begin;
  return begin;
}

}  // namespace

bool trained_on_conversations(const Recipe& recipe) {
  for (const ConfigValue& item : recipe.data().at("train").items()) {
    const std::string type = source_type(item).as_string();
    const ConfigValue* prompt = item.find("prompt");
    if (type == "chat" || (type == "folder" && prompt != nullptr && !prompt->text().empty())) return true;
  }
  return false;
}

void add_turn(RawSample& sample, const std::string& role, std::vector<Media> media, const std::string& text) {
  sample.parts.push_back(SamplePart::make_turn_begin(role));
  for (Media& item : media) sample.parts.push_back(SamplePart::make_media(std::move(item)));
  if (!text.empty()) sample.parts.push_back(SamplePart::make_text(text, false));
  sample.parts.push_back(SamplePart::make_turn_end(false));
}

RawSample make_question(const std::string& name, std::vector<Media> media, const std::string& text,
                        const AskOptions& options) {
  RawSample out;
  out.name = name;
  out.key = hash_name(name);
  if (options.chat) {
    if (!options.system.empty()) add_turn(out, "system", {}, options.system);
    add_turn(out, "user", std::move(media), text);
    out.parts.push_back(SamplePart::make_turn_begin("assistant"));
    return out;
  }
  for (Media& item : media) out.parts.push_back(SamplePart::make_media(std::move(item)));
  if (!text.empty()) out.parts.push_back(SamplePart::make_text(text, false));
  return out;
}

std::string cut_answer(RawSample& sample) {
  std::vector<SamplePart>& parts = sample.parts;
  const bool turns = !parts.empty() && parts.front().kind == Kind::turn_begin;
  const size_t begin = answer_part(parts);
  std::string text;
  for (size_t i = begin; i < parts.size(); ++i) {
    if (parts[i].kind == Kind::text) text += parts[i].text;
  }
  if (turns && begin == parts.size() && parts.back().kind == Kind::turn_end)
    parts.push_back(SamplePart::make_turn_begin("assistant"));
  else
    parts.resize(begin);
  for (SamplePart& part : parts) part.supervised = false;
  return text;
}

std::string prompt_text(const RawSample& sample) {
  const size_t end = answer_part(sample.parts);
  std::string plain, lines, role;
  int turns = 0;
  for (size_t i = 0; i < end; ++i) {
    const SamplePart& part = sample.parts[i];
    if (part.kind == Kind::turn_begin) {
      role = part.text;
      if (i + 1 == end) break;  // the answer's own
      lines += concat(turns++ > 0 ? "\n" : "", role, ": ");
    } else if (part.kind == Kind::text) {
      plain += part.text;
      lines += part.text;
    }
  }
  return turns > 1 ? lines : plain;
}

size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const char c = text[text.size() - back];
    if (continues(c)) continue;
    return character_size(c) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::string clean_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t size = character_size(text[i]);
    if (size > 0 && i + size <= text.size() && valid_utf8(text.substr(i, size))) {
      out += text.substr(i, size);
      i += size;
    } else {
      out += "\xef\xbf\xbd";
      ++i;
    }
  }
  return out;
}

Media open_picture(const std::string& place, const AskOptions& options) {
  LOOM_CHECK_USER(!options.modality.empty(), place, ": the model takes no pictures");
  const size_t mark = place.rfind('#');
  if (mark == std::string::npos || is_file(place)) return read_picture(place, options.modality, options.pictures);
  const std::string number = place.substr(mark + 1);
  LOOM_CHECK_USER(!number.empty() && number.find_first_not_of("0123456789") == std::string::npos && number.size() < 10,
                  place, ": after '#' a picture number is expected, from 0");
  return read_idx_picture(place.substr(0, mark), std::stoll(number), options.modality);
}

PreparedSample prepare_question(const Job& job, const RawSample& sample) {
  LOOM_CHECK_USER(!sample.parts.empty(), sample.name, ": nothing is asked; expected a prompt or a picture");
  PreparedSample out = job.preparer->prepare(sample);
  LOOM_CHECK_USER(out.verdict.ok, sample.name, ": ", out.verdict.reason);
  return out;
}

}  // namespace loom
