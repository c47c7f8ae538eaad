// Written whole for every line: there are few, and a file is then never torn.
#include "core/data/mix_journal.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace loom {

MixJournal::MixJournal(std::string path, std::vector<std::string> sources)
    : path_(std::move(path)), sources_(std::move(sources)) {
  if (!path_.empty() && is_file(path_)) load();
}

void MixJournal::load() {
  int64_t number = 0;
  for (const std::string& line : split(read_text(path_), '\n')) {
    ++number;
    if (line.empty()) continue;
    const auto refuse = [&](const std::string& why) {
      throw UserError(concat(path_, ":", number, ": not a change of this run's mix: ", why));
    };
    try {
      const nlohmann::json row = nlohmann::json::parse(line);
      MixRecord record;
      record.change.begin = row.at("position").get<uint64_t>();
      record.step = row.at("step").get<int64_t>();
      record.id = row.at("id").get<std::string>();
      double sum = 0;
      for (const std::string& source : sources_) {
        const double weight = row.at("weights").value(source, 0.0);
        if (!(weight >= 0)) refuse(concat("weight ", weight, " of ", source));
        sum += weight;
        record.change.weights.push_back(weight);
      }
      for (const auto& [name, weight] : row.at("weights").items()) {
        if (std::find(sources_.begin(), sources_.end(), name) == sources_.end())
          refuse(concat("no data source ", quote_text(name), did_you_mean(name, sources_)));
      }
      if (!(sum > 0)) refuse("no weight is above 0");
      records_.push_back(std::move(record));
    } catch (const nlohmann::json::exception& problem) {
      refuse(quote_text(problem.what()));
    }
  }
}

void MixJournal::add(const MixRecord& record) {
  LOOM_CHECK(record.change.weights.size() == sources_.size(), record.change.weights.size(), " weights");
  records_.push_back(record);
  if (path_.empty()) return;
  std::string text;
  for (const MixRecord& each : records_) {
    nlohmann::ordered_json weights = nlohmann::ordered_json::object();
    for (size_t s = 0; s < sources_.size(); ++s) weights[sources_[s]] = each.change.weights[s];
    const nlohmann::ordered_json row = {
        {"position", each.change.begin}, {"step", each.step}, {"weights", weights}, {"id", each.id}};
    text += row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  write_file_atomic(path_, text);
}

bool MixJournal::knows(const std::string& id) const {
  for (const MixRecord& record : records_) {
    if (record.id == id) return true;
  }
  return false;
}

std::vector<MixSegment> MixJournal::changes() const {
  std::vector<MixSegment> out;
  for (const MixRecord& record : records_) change_mix(out, record.change);
  return out;
}

}  // namespace loom
