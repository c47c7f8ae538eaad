#include "core/data/chat_media.h"

#include <cctype>
#include <filesystem>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

constexpr std::string_view kFile = "file://", kData = "data:";

bool starts(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// "http", "s3": what stands before "://"; nothing for paths.
std::string_view scheme_of(std::string_view reference) {
  const size_t end = reference.find("://");
  if (end == std::string_view::npos || end < 2) return {};
  for (const char c : reference.substr(0, end)) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '+' && c != '-' && c != '.') return {};
  }
  return reference.substr(0, end);
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  if (c == '/' || c == '_') return 63;
  return -1;
}

std::string base64_bytes(std::string_view text, const std::string& name) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ') continue;
    const int value = base64_value(c);
    LOOM_CHECK_USER(value >= 0, name, ": not base64: found ", quote_text(std::string_view(&c, 1)));
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  return out;
}

// "a%20b" is "a b".
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool coded = text[i] == '%' && i + 2 < text.size() &&
                       std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                       std::isxdigit(static_cast<unsigned char>(text[i + 2]));
    if (coded) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string media_reference(const Json& value, const std::string& path) {
  const std::vector<std::string> keys = {"path", "url", "image"};
  const Json* text = &value;
  std::string where = path;
  if (value.is_object()) {
    text = nullptr;
    for (const std::string& key : keys) {
      if (text != nullptr) break;
      text = given(value, key.c_str());
      where = concat(path, ".", key);
    }
    if (text == nullptr)
      throw UserError(concat(path, ": expected a path, or an object with path, url or image", found_keys(value, keys)));
  }
  LOOM_CHECK_USER(text->is_string(), where, ": expected the path of a picture, found ", json_kind(*text));
  std::string out = text->get<std::string>();
  LOOM_CHECK_USER(!trim(out).empty(), where, ": expected the path of a picture, found an empty text");
  const std::string_view scheme = scheme_of(out);
  LOOM_CHECK_USER(scheme.empty() || scheme == "file", where, ": ", quote_text(out),
                  " is not on this machine, and nothing is downloaded; fetch it first and give the path of the file");
  return out;
}

Media open_media(const std::string& reference, const std::string& root, const std::string& modality,
                 const PictureOptions& options) {
  if (starts(reference, kData)) {
    const size_t comma = reference.find(',');
    const std::string kind = reference.substr(0, std::min<size_t>(comma, 60));
    LOOM_CHECK_USER(comma != std::string::npos && kind.find(";base64") != std::string::npos, quote_text(kind),
                    ": expected data:image/png;base64, and the bytes of a picture");
    const std::string bytes = base64_bytes(std::string_view(reference).substr(comma + 1), kind);
    return decode_picture(bytes, kind, modality, options);
  }
  std::filesystem::path path = reference;
  if (starts(reference, kFile)) {
    std::string_view rest = std::string_view(reference).substr(kFile.size());
    if (starts(rest, "localhost/")) rest.remove_prefix(std::string_view("localhost").size());
    path = percent_decoded(rest);
  }
  if (path.is_relative()) path = std::filesystem::path(root) / path;
  return read_picture(path.lexically_normal().string(), modality, options);
}

}  // namespace loom
