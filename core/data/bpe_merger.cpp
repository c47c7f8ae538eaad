#include "core/data/bpe_merger.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "core/base/error.h"

namespace loom {
namespace {

constexpr size_t kShort = 48;  // bytes; up to here scanning is faster than a heap

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Multiplying spreads the bits upwards, so the high ones are taken.
size_t place_of(uint64_t key, int shift) { return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> shift); }

struct Candidate {
  uint32_t rank, left, right;  // places in the word
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

}  // namespace

BpeMerger::BpeMerger(const BpeModel& model) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, 2 * model.merges.size()));
  rows_.resize(size);
  shift_ = 64 - std::countr_zero(size);
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const BpeMerge& merge = model.merges[rank];
    size_t place = place_of(key_of(merge.left, merge.right), shift_);
    while (rows_[place].pair != kNone) place = (place + 1) & (size - 1);
    rows_[place] = {key_of(merge.left, merge.right), static_cast<uint32_t>(rank), merge.result};
  }
  size_t bytes = 0;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].size() != 1 || model.is_special(static_cast<int32_t>(id))) continue;
    byte_ids_[static_cast<unsigned char>(model.tokens[id][0])] = static_cast<int32_t>(id);
    ++bytes;
  }
  LOOM_CHECK(bytes == 256, bytes, " of 256 bytes are tokens");
}

const BpeMerger::Row& BpeMerger::find(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  for (size_t place = place_of(key, shift_);; place = (place + 1) & (rows_.size() - 1)) {
    if (rows_[place].pair == key) return rows_[place];
    if (rows_[place].pair == kNone) return nothing_;
  }
}

void BpeMerger::apply(std::string_view word, std::vector<int64_t>& out) const {
  if (word.size() <= kShort) return apply_short(word, out);
  apply_long(word, out);
}

void BpeMerger::apply_short(std::string_view word, std::vector<int64_t>& out) const {
  int32_t ids[kShort];
  const Row* rows[kShort];  // of the pair that begins here
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  for (size_t i = 0; i + 1 < count; ++i) rows[i] = &find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (rows[i]->rank < rows[best]->rank) best = i;
    }
    if (rows[best]->rank == kNever) break;
    ids[best] = rows[best]->result;
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    if (best + 2 < count) std::copy(rows + best + 2, rows + count - 1, rows + best + 1);
    --count;
    if (best > 0) rows[best - 1] = &find(ids[best - 1], ids[best]);
    if (best + 1 < count) rows[best] = &find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + count);
}

void BpeMerger::apply_long(std::string_view word, std::vector<int64_t>& out) const {
  LOOM_CHECK_USER(word.size() < kNever, "a word of ", word.size(), " bytes cannot be tokenized; break it up");
  const auto count = static_cast<uint32_t>(word.size());
  // Neighbours by place; a merged pair lives on at its left place. `count` stands for none.
  std::vector<int32_t> ids(count);
  std::vector<uint32_t> before(count), after(count);
  for (uint32_t i = 0; i < count; ++i) {
    ids[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    before[i] = i == 0 ? count : i - 1;
    after[i] = i + 1;
  }
  std::vector<Candidate> first;
  const auto candidate = [&](uint32_t left, uint32_t right) {
    return Candidate{find(ids[left], ids[right]).rank, left, right};
  };
  for (uint32_t i = 0; i + 1 < count; ++i) {
    const Candidate next = candidate(i, i + 1);
    if (next.rank != kNever) first.push_back(next);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(std::greater<>(), std::move(first));
  constexpr int32_t kGone = -1;
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    const auto [rank, left, right] = top;
    if (ids[left] == kGone || after[left] != right) continue;
    const Row& row = find(ids[left], ids[right]);
    if (row.rank != rank) continue;  // one of the two has grown since
    ids[left] = row.result;
    ids[right] = kGone;
    after[left] = after[right];
    if (after[left] < count) before[after[left]] = left;
    if (before[left] < count) {
      if (const Candidate next = candidate(before[left], left); next.rank != kNever) heap.push(next);
    }
    if (after[left] < count) {
      if (const Candidate next = candidate(left, after[left]); next.rank != kNever) heap.push(next);
    }
  }
  for (uint32_t i = 0; i < count; i = after[i]) out.push_back(ids[i]);
}

}  // namespace loom
