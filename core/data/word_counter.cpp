#include "core/data/word_counter.h"

#include <algorithm>
#include <memory>

#include "core/data/pretokenizer.h"

namespace loom {
namespace {

constexpr size_t kChunk = 1 << 20;
// Text without spaces would make words whose every merge costs their whole length; nothing is learned from more than
// this.
constexpr size_t kLongest = 512;

}  // namespace

// Tasks use this object; their errors, if any, belong to whoever was destroying it.
WordCounter::~WordCounter() {
  while (!tasks_.empty()) {
    try {
      tasks_.front().get();
    } catch (const std::exception&) {
    }
    tasks_.pop_front();
  }
}

void WordCounter::add(std::string_view text) {
  ++texts_;
  bytes_ += static_cast<int64_t>(text.size());
  chunk_.bytes += text;
  chunk_.ends.push_back(chunk_.bytes.size());
  if (chunk_.bytes.size() >= kChunk) flush();
}

void WordCounter::flush() {
  const auto chunk = std::make_shared<Chunk>(std::move(chunk_));
  chunk_ = Chunk();
  wait_for(2 * static_cast<size_t>(pool_.size()));
  tasks_.push_back(pool_.submit([this, chunk] {
    Counts found = count(*chunk);
    const std::lock_guard<std::mutex> guard(mutex_);
    if (counts_.empty()) {
      counts_ = std::move(found);
      return;
    }
    for (const auto& [word, number] : found) counts_[word] += number;
  }));
}

// Until fewer than `running` + 1 tasks are left.
void WordCounter::wait_for(size_t running) {
  while (tasks_.size() > running) {
    tasks_.front().get();
    tasks_.pop_front();
  }
}

WordCounter::Counts WordCounter::count(const Chunk& chunk) {
  Counts out;
  size_t begin = 0;
  for (const size_t end : chunk.ends) {
    Pretokens words(std::string_view(chunk.bytes).substr(begin, end - begin));
    for (std::string_view word; words.next(word);) {
      while (!word.empty()) {
        size_t size = std::min(word.size(), kLongest);
        while (size < word.size() && (word[size] & 0xc0) == 0x80) --size;  // not through a character
        const auto found = out.find(word.substr(0, size));
        if (found != out.end()) {
          ++found->second;
        } else {
          out.emplace(word.substr(0, size), 1);
        }
        word.remove_prefix(size);
      }
    }
    begin = end;
  }
  return out;
}

WordCounts WordCounter::finish() {
  flush();
  wait_for(0);
  WordCounts out;
  out.texts = texts_;
  out.bytes = bytes_;
  out.words.reserve(counts_.size());
  for (auto& [word, number] : counts_) out.words.emplace_back(word, number);
  counts_.clear();
  std::sort(out.words.begin(), out.words.end());
  return out;
}

}  // namespace loom
