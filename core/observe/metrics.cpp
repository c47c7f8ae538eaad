// Writing is by hand (exact digits, order of keys); reading goes through nlohmann-json.
#include "core/observe/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace loom {
namespace {

std::string json_string(const std::string& text) {
  std::string out = "\"";
  bool utf8 = valid_utf8(text);
  for (char c : text) {
    char hex[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(hex, sizeof hex, "\\u%04x", static_cast<unsigned>(c));
      out += hex;
    } else {
      out += utf8 || static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
  }
  return out + "\"";
}

std::string json_number(double value) {
  std::string text = shortest_double(value);
  if (!std::isfinite(value)) return "\"" + text + "\"";
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;  // stays a floating-point number when read
}

std::string json_value(const MetricValue& value) {
  if (const double* number = std::get_if<double>(&value)) return json_number(*number);
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  return json_string(std::get<std::string>(value));
}

MetricValue from_json(const nlohmann::ordered_json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return value.dump();
  std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return text;
}

// Nothing when the text is not a complete line of ours.
std::optional<MetricsLine> parse_line(std::string_view text) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  MetricsLine line;
  for (const auto& [name, value] : json.items()) {
    if (name == "step") {
      line.step = value.get<int64_t>();
    } else {
      line.values.emplace_back(name, from_json(value));
    }
  }
  return line;
}

// Calls use(text without newline) for every line that ends with a newline.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    use(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

MetricsLine& MetricsLine::add(std::string name, MetricValue value) {
  values.emplace_back(std::move(name), std::move(value));
  return *this;
}

const MetricValue* MetricsLine::find(const std::string& name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return &value;
  }
  return nullptr;
}

double MetricsLine::number(const std::string& name, double absent) const {
  const MetricValue* value = find(name);
  if (value == nullptr) return absent;
  if (const double* number = std::get_if<double>(value)) return *number;
  if (const int64_t* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  return absent;
}

std::string metrics_json(const MetricsLine& line) {
  std::string out = "{\"step\":" + std::to_string(line.step);
  for (const auto& [name, value] : line.values) out += "," + json_string(name) + ":" + json_value(value);
  return out + "}";
}

MetricsWriter::MetricsWriter(std::string path) : path_(std::move(path)) { open(); }

MetricsWriter::~MetricsWriter() { close(); }

void MetricsWriter::open() {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_file_error("open", path_, errno);
  try {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) throw_file_error("read", path_, errno);
    size_ = S_ISREG(info.st_mode) ? info.st_size : 0;
    int64_t end = size_;
    char last = '\n';
    while (end > 0) {
      if (::pread(descriptor_, &last, 1, end - 1) != 1) throw_file_error("read", path_, errno);
      if (last == '\n') break;
      --end;
    }
    if (end != size_ && ::ftruncate(descriptor_, end) != 0) throw_file_error("write", path_, errno);
    size_ = end;
  } catch (...) {
    close();
    throw;
  }
}

void MetricsWriter::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void MetricsWriter::write_json(const std::string& object) {
  const std::string text = object + "\n";
  try {
    write_fully(descriptor_, text, path_);
  } catch (const Error&) {
    if (::ftruncate(descriptor_, size_) != 0) throw;  // the torn line is cut off at the next start
    throw;
  }
  size_ += static_cast<int64_t>(text.size());
}

void MetricsWriter::truncate_after(int64_t step) {
  std::string kept;
  for_each_line(read_text(path_), [&](std::string_view text) {
    std::optional<MetricsLine> line = parse_line(text);
    if (line && line->step <= step) kept.append(text).append("\n");
  });
  write_file_atomic(path_, kept);
  close();
  open();
}

void for_each_metrics_line(const std::string& path, const std::function<void(const MetricsLine&)>& use) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    read_text(path);  // says why
    throw_file_error("open", path, EIO);
  }
  std::string text;
  while (std::getline(file, text) && !file.eof()) {
    const std::optional<MetricsLine> line = parse_line(text);
    if (line) use(*line);
  }
}

std::vector<MetricsLine> read_metrics(const std::string& path) {
  std::vector<MetricsLine> lines;
  for_each_metrics_line(path, [&](const MetricsLine& line) { lines.push_back(line); });
  return lines;
}

}  // namespace loom
