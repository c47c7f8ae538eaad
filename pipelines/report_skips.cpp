// Words are judged one by one: what looks like a path or a name of a sample goes, digits become N.
#include "pipelines/report_skips.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/text.h"

namespace loom {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "/a/b", "x.jpg", "train.0#12", with whatever punctuation around.
bool is_name(std::string_view word) {
  while (!word.empty() && std::string_view("()\"':,;").find(word.back()) != std::string_view::npos)
    word.remove_suffix(1);
  const size_t line = word.find_last_not_of("0123456789");  // "doors.jsonl:18": a name with its line number
  if (line != std::string_view::npos && line + 1 < word.size() && line > 0 && word[line] == ':') return true;
  if (word.find('/') != std::string_view::npos && word.size() > 2) return true;
  if (word.find('#') != std::string_view::npos) return true;
  const size_t dot = word.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 >= word.size()) return false;
  // An ending is letters and digits, and not all digits: 1.5 is a number.
  const std::string_view ending = word.substr(dot + 1);
  return ending.size() <= 5 && std::isalpha(static_cast<unsigned char>(ending[0])) != 0;
}

// Runs of digits, with points and commas between them, as one N.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (!is_digit(text[i])) {
      out += text[i++];
      continue;
    }
    while (i < text.size() &&
           (is_digit(text[i]) || ((text[i] == '.' || text[i] == ',') && i + 1 < text.size() && is_digit(text[i + 1]))))
      ++i;
    out += 'N';
  }
  return out;
}

// 'quoted' and "quoted" pieces as dots.
std::string without_quotes(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char quote = text[i];
    // An apostrophe inside a word is none.
    const bool opens =
        (quote == '\'' || quote == '"') && (i == 0 || std::isalnum(static_cast<unsigned char>(text[i - 1])) == 0);
    const size_t end = opens ? text.find(quote, i + 1) : std::string::npos;
    if (end == std::string::npos) {
      out += text[i];
      continue;
    }
    out += "'…'";
    i = end;
  }
  return out;
}

}  // namespace

std::string skip_kind(const std::string& reason) {
  std::vector<std::string> kept;
  for (const std::string& word : split(without_quotes(reason), ' ')) {
    if (!word.empty() && !is_name(word)) kept.push_back(word);
  }
  std::string kind = without_numbers(join(kept, " "));
  while (!kind.empty() && (kind[0] == ':' || kind[0] == ' ' || kind[0] == ',')) kind.erase(0, 1);
  while (!kind.empty() && (kind.back() == ':' || kind.back() == ' ' || kind.back() == ',')) kind.pop_back();
  return kind.empty() ? "without a reason" : kind;
}

std::vector<ReportSkip> skips_by_kind(const std::vector<SkipRecord>& skips) {
  std::map<std::string, ReportSkip> kinds;
  for (const SkipRecord& skip : skips) {
    std::string kind = skip_kind(skip.reason);
    if (skip.left_out) kind += " (left out as the recipe says)";
    ReportSkip& entry = kinds[kind];
    if (entry.count++ == 0) entry.example = skip.name + ": " + skip.reason;
    entry.kind = kind;
  }
  std::vector<ReportSkip> out;
  for (auto& [kind, entry] : kinds) out.push_back(std::move(entry));
  std::stable_sort(out.begin(), out.end(), [](const ReportSkip& a, const ReportSkip& b) { return a.count > b.count; });
  return out;
}

}  // namespace loom
