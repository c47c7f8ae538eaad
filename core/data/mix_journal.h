#pragma once
// The changes that were made to the mix of a run while it went on, on disk as one JSON object per line. A run that goes
// on from an earlier step makes them again at the same samples.
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/mix.h"

namespace loom {

struct MixRecord {
  MixSegment change;
  int64_t step = 0;  // the first one it is for
  std::string id;    // of the request, so that one is not carried out twice; any text
};

class MixJournal {
 public:
  // An empty path keeps the journal in memory only. Reads what is there. `sources` name the weights of a line.
  // UserError for what is no journal of these sources.
  MixJournal(std::string path, std::vector<std::string> sources);

  // Durable when it returns. EnvironmentError when the file cannot be written.
  void add(const MixRecord& record);
  bool knows(const std::string& id) const;
  // Those in force, ascending: a later line drops those that begin where it does or behind it.
  std::vector<MixSegment> changes() const;

 private:
  void load();

  std::string path_;
  std::vector<std::string> sources_;
  std::vector<MixRecord> records_;  // as written
};

}  // namespace loom
