#include "pipelines/json_lines.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/base/file.h"

namespace loom {

JsonLines::JsonLines(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty()) make_dirs(folder.string());
  own_.reset(std::fopen(path_.c_str(), "wbe"));
  if (own_ == nullptr) fail();
}

void JsonLines::fail() const { throw_file_error("write", path_.empty() ? "the output" : path_, errno); }

void JsonLines::write(const Line& line) {
  const std::string text = line.dump(-1, ' ', false, Line::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file()) != text.size()) fail();
}

void JsonLines::flush() {
  if (std::fflush(file()) != 0) fail();
}

std::vector<std::string_view> last_lines(std::string_view text, size_t count) {
  std::vector<std::string_view> out;
  size_t end = text.rfind('\n');
  while (end != std::string_view::npos && out.size() < count) {
    const size_t before = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
    const size_t begin = before == std::string_view::npos ? 0 : before + 1;
    out.push_back(text.substr(begin, end - begin));
    end = before;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace loom
