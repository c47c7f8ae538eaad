#pragma once
// The list of samples that were skipped, on disk as one JSON object per line. It is replayed after a crash or on
// resume: a sample that was skipped once stays skipped even if its file could be read by now, so a rerun gives the same
// steps.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace loom {

struct SkipRecord {
  uint64_t position = 0;
  uint64_t sample = 0;  // key
  int64_t step = 0;     // whose plan it would have entered
  std::string name;
  std::string reason;
  bool left_out = false;  // as the recipe asked
};

class SkipJournal {
 public:
  // An empty path keeps the journal in memory only. Reads what is there; a line cut off by a crash is dropped.
  explicit SkipJournal(std::string path);
  ~SkipJournal();
  SkipJournal(const SkipJournal&) = delete;
  SkipJournal& operator=(const SkipJournal&) = delete;

  // The record for this sample at this position; null when there is none (or it is about another sample).
  const SkipRecord* find(uint64_t position, uint64_t sample) const;
  // Appends unless it is known. EnvironmentError when the file cannot be written.
  void add(const SkipRecord& record);
  // Records before `position`, in order.
  std::vector<SkipRecord> before(uint64_t position) const;

 private:
  void load();

  std::string path_;
  int descriptor_ = -1;
  std::map<uint64_t, SkipRecord> records_;
};

}  // namespace loom
