// Appended line by line with one write each; the file is opened when the first line comes, so a clean run leaves no
// empty file.
#include "core/data/skip_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace loom {

SkipJournal::SkipJournal(std::string path) : path_(std::move(path)) {
  if (!path_.empty() && is_file(path_)) load();
}

SkipJournal::~SkipJournal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SkipJournal::load() {
  std::string text = read_text(path_);
  const size_t complete = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (complete < text.size() && ::truncate(path_.c_str(), static_cast<off_t>(complete)) != 0)
    throw_file_error("truncate", path_, errno);
  text.resize(complete);
  int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    try {
      const nlohmann::json row = nlohmann::json::parse(line);
      SkipRecord record;
      record.position = row.at("position").get<uint64_t>();
      record.sample = row.at("sample").get<uint64_t>();
      record.step = row.at("step").get<int64_t>();
      record.name = row.at("name").get<std::string>();
      record.reason = row.at("reason").get<std::string>();
      record.left_out = row.at("left_out").get<bool>();
      records_[record.position] = std::move(record);
    } catch (const nlohmann::json::exception& problem) {
      throw UserError(concat(path_, ":", number, ": not a line of a skip journal: ", quote_text(problem.what())));
    }
  }
}

const SkipRecord* SkipJournal::find(uint64_t position, uint64_t sample) const {
  const auto found = records_.find(position);
  return found != records_.end() && found->second.sample == sample ? &found->second : nullptr;
}

void SkipJournal::add(const SkipRecord& record) {
  if (find(record.position, record.sample) != nullptr) return;
  records_[record.position] = record;
  if (path_.empty()) return;
  if (descriptor_ < 0) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw_file_error("create", path_, errno);
  }
  const nlohmann::ordered_json row = {{"position", record.position}, {"step", record.step},
                                      {"name", record.name},         {"reason", record.reason},
                                      {"sample", record.sample},     {"left_out", record.left_out}};
  // Reasons may quote bytes of a damaged file; what is no UTF-8 is replaced.
  write_fully(descriptor_, row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n", path_);
}

std::vector<SkipRecord> SkipJournal::before(uint64_t position) const {
  std::vector<SkipRecord> out;
  for (auto it = records_.begin(); it != records_.end() && it->first < position; ++it) out.push_back(it->second);
  return out;
}

}  // namespace loom
