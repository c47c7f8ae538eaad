#pragma once
// How often each word stands in some texts: all that training a BPE vocabulary needs of them. Counted in parallel; the
// result does not depend on the threads.
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/thread_pool.h"

namespace loom {

struct WordCounts {
  std::vector<std::pair<std::string, int64_t>> words;  // by bytes
  int64_t texts = 0, bytes = 0;
};

class WordCounter {
 public:
  explicit WordCounter(ThreadPool& pool) : pool_(pool) {}
  ~WordCounter();
  WordCounter(const WordCounter&) = delete;
  WordCounter& operator=(const WordCounter&) = delete;

  void add(std::string_view text);  // no word spans two texts
  WordCounts finish();

 private:
  // A key may be looked up without making a string of it.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Counts = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;
  struct Chunk {
    std::string bytes;
    std::vector<size_t> ends;  // of the texts
  };

  void flush();
  void wait_for(size_t running);
  static Counts count(const Chunk& chunk);

  ThreadPool& pool_;
  Chunk chunk_;
  std::deque<Task<void>> tasks_;
  std::mutex mutex_;
  Counts counts_;
  int64_t texts_ = 0, bytes_ = 0;
};

}  // namespace loom
