// Free pieces with memory and those without are never joined, so that what is held is known to the page. A piece with
// memory that fits is preferred; only when there is none does untouched memory get used, and when free pieces then sum
// to more than the bound, the largest of them give their memory back.
#include "core/parallel/memory_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>
#include <vector>

namespace loom {
namespace {

struct BySize {
  bool operator()(const PoolBlock* a, const PoolBlock* b) const {
    return a->size != b->size ? a->size < b->size : a->at < b->at;
  }
};
using FreeBlocks = std::set<PoolBlock*, BySize>;

size_t page_size() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

struct MemoryPool::State {
  explicit State(size_t bytes, size_t slack_bytes) : slack(slack_bytes) {
    range = (bytes + page_size() - 1) / page_size() * page_size();
    void* at = ::mmap(nullptr, range, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return;
    base = static_cast<char*>(at);
    PoolBlock* all = make_block(base, range);
    all->free = true;
    unbacked.insert(all);
  }

  ~State() {
    if (base != nullptr) ::munmap(base, range);
  }

  PoolBlock* make_block(char* at, size_t size) {
    PoolBlock* block = nullptr;
    if (!spare.empty()) {
      block = spare.back();
      spare.pop_back();
    } else {
      block = &blocks.emplace_back();
    }
    *block = PoolBlock{at, size};
    return block;
  }

  FreeBlocks& list_of(const PoolBlock* block) { return block->backed ? backed : unbacked; }

  void insert(PoolBlock* block) {
    list_of(block).insert(block);
    if (block->backed) free_bytes += block->size;
  }

  void remove(PoolBlock* block) {
    list_of(block).erase(block);
    if (block->backed) free_bytes -= block->size;
  }

  // The block becomes one with free neighbours of its kind. It is in no list before, the result is in one after.
  void join(PoolBlock* block) {
    if (PoolBlock* next = block->after; next != nullptr && next->free && next->backed == block->backed) {
      remove(next);
      block->size += next->size;
      unlink(next);
    }
    if (PoolBlock* previous = block->before;
        previous != nullptr && previous->free && previous->backed == block->backed) {
      remove(previous);
      previous->size += block->size;
      unlink(block);
      block = previous;
    }
    insert(block);
  }

  void unlink(PoolBlock* block) {
    if (block->before != nullptr) block->before->after = block->after;
    if (block->after != nullptr) block->after->before = block->before;
    spare.push_back(block);
  }

  // The first `size` bytes of a free block; the rest stays free.
  PoolBlock* take(PoolBlock* block, size_t size) {
    remove(block);
    if (block->size > size) {
      PoolBlock* rest = make_block(block->at + size, block->size - size);
      rest->free = true;
      rest->backed = block->backed;
      rest->before = block;
      rest->after = block->after;
      if (rest->after != nullptr) rest->after->before = rest;
      block->after = rest;
      block->size = size;
      insert(rest);
    }
    block->free = false;
    return block;
  }

  void give_back(PoolBlock* block) {
    remove(block);
    ::madvise(block->at, block->size, MADV_DONTNEED);
    block->backed = false;
    join(block);
  }

  void bound_free(size_t most) {
    while (free_bytes > most) give_back(*backed.rbegin());
  }

  // Held memory stays below the largest use and a sixteenth of it.
  void bound_held() {
    const size_t most = std::max(largest, largest_before), limit = most + most / 16 + slack;
    bound_free(limit > in_use ? limit - in_use : 0);
  }

  mutable std::mutex mutex;
  char* base = nullptr;
  size_t range = 0, slack = 0;
  std::deque<PoolBlock> blocks;
  std::vector<PoolBlock*> spare;
  FreeBlocks backed, unbacked;
  size_t in_use = 0, free_bytes = 0;  // free_bytes: with memory
  size_t largest = 0, largest_before = 0;
  int64_t cleared = 0;
};

MemoryPool::MemoryPool(size_t range, size_t slack) : state_(std::make_unique<State>(range, slack)) {}
MemoryPool::~MemoryPool() = default;

PoolBlock* MemoryPool::allocate(size_t bytes) {
  State& s = *state_;
  if (bytes > s.range) return nullptr;
  PoolBlock wanted;
  wanted.size = std::max((bytes + page_size() - 1) / page_size() * page_size(), page_size());
  const std::lock_guard<std::mutex> lock(s.mutex);
  auto found = s.backed.lower_bound(&wanted);
  if (found == s.backed.end()) {
    found = s.unbacked.lower_bound(&wanted);
    if (found == s.unbacked.end()) {
      s.bound_free(0);  // all that is free becomes of one kind and is joined
      found = s.unbacked.lower_bound(&wanted);
      if (found == s.unbacked.end()) return nullptr;
    }
    s.cleared += static_cast<int64_t>(wanted.size);
  }
  PoolBlock* const block = s.take(*found, wanted.size);
  block->backed = true;
  s.in_use += block->size;
  s.largest = std::max(s.largest, s.in_use);
  s.bound_held();
  return block;
}

void MemoryPool::free(PoolBlock* block) {
  State& s = *state_;
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.in_use -= block->size;
  block->free = true;
  s.join(block);
}

void MemoryPool::end_step() {
  State& s = *state_;
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.largest_before = s.largest;
  s.largest = s.in_use;
  s.bound_held();
}

void MemoryPool::release_unused() {
  State& s = *state_;
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.bound_free(0);
}

PoolUse MemoryPool::use() const {
  const State& s = *state_;
  const std::lock_guard<std::mutex> lock(s.mutex);
  return {static_cast<int64_t>(s.in_use), static_cast<int64_t>(s.in_use + s.free_bytes), s.cleared};
}

}  // namespace loom
