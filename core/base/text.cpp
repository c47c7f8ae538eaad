// Plain implementations: the inputs are names and messages, never data.
#include "core/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace loom {
namespace {

char fold(char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// value / 1000^k with one digit, moving to the next suffix when rounding reaches 1000.
std::string scaled(double value, const char* const* suffixes, int count, const char* gap) {
  int k = 0;
  double v = std::abs(value);
  while (k + 1 < count && (k == 0 ? v >= 999.5 : v >= 999.95)) {
    v /= 1000;
    ++k;
  }
  char out[64];
  std::snprintf(out, sizeof out, k == 0 ? "%s%.0f%s%s" : "%s%.1f%s%s", value < 0 ? "-" : "", v, gap, suffixes[k]);
  return out;
}

// Bytes of the character that begins at `at`; 0 when it is no valid UTF-8.
std::size_t character_size(std::string_view text, std::size_t at) {
  const unsigned char lead = static_cast<unsigned char>(text[at]);
  const std::size_t extra = lead < 0x80 ? 0 : (lead >> 5) == 6 ? 1 : (lead >> 4) == 14 ? 2 : (lead >> 3) == 30 ? 3 : 9;
  if (extra == 9 || at + extra >= text.size()) return 0;
  uint32_t code = extra == 0 ? lead : lead & (0x3fu >> extra);
  for (std::size_t k = 1; k <= extra; ++k) {
    const unsigned char c = static_cast<unsigned char>(text[at + k]);
    if ((c >> 6) != 2) return 0;
    code = code << 6 | (c & 0x3f);
  }
  static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < least[extra] || code > 0x10ffff || surrogate ? 0 : extra + 1;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      bool same = fold(a[i - 1]) == fold(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    std::size_t longest = std::max(name.size(), candidate.size());
    std::size_t limit = std::max<std::size_t>(1, longest / 4);
    std::size_t distance = edit_distance(name, candidate);
    if (distance > limit || distance >= longest) continue;
    if (longest <= 2 && distance > 0 && (name.empty() || fold(name[0]) != fold(candidate[0]))) continue;
    if (!best || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  std::optional<std::string> near = nearest(name, candidates);
  return near ? "; did you mean '" + *near + "'?" : "";
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string_view trim(std::string_view text) {
  const char* const blanks = " \t\r\n\f\v";
  std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string quote_text(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out = "'";
  std::size_t columns = 0, cut = 0;  // where "..." would begin
  for (std::size_t i = 0; i < text.size(); ++columns) {
    if (columns == kLongest - 3) cut = out.size();
    if (columns == kLongest) return out.substr(0, cut) + "...'";
    const std::size_t size = character_size(text, i);
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '\n') {
      out += "\\n";
    } else if (size == 0 || c < 0x20 || c == 0x7f) {
      out += '?';
    } else {
      out += text.substr(i, size);
    }
    i += std::max<std::size_t>(size, 1);
  }
  return out + "'";
}

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0;
  std::size_t star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string human_count(double value) {
  static const char* const suffixes[] = {"", "K", "M", "B", "T"};
  return scaled(value, suffixes, 5, "");
}

std::string human_bytes(double bytes) {
  static const char* const suffixes[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  return scaled(bytes, suffixes, 6, " ");
}

std::string human_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) return "?";
  long long s = std::llround(seconds);
  char out[48];
  if (s >= 3600) {
    std::snprintf(out, sizeof out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(out, sizeof out, "%lld:%02lld", s / 60, s % 60);
  }
  return out;
}

std::string shortest_double(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> buffer;
  std::to_chars_result end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), end.ptr);
}

bool valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = character_size(text, i);
    if (size == 0) return false;
    i += size;
  }
  return true;
}

std::size_t utf8_columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string utf8_cut(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80 && seen++ == columns) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

}  // namespace loom
