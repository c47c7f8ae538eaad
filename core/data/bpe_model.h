#pragma once
// A byte-level BPE vocabulary as plain data: what the trainer makes, a tokenizer.json holds and the tokenizer works
// from.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace loom {

struct BpeMerge {
  int32_t left = 0, right = 0;
  int32_t result = 0;  // the token whose bytes are those of left and right
};

struct BpeModel {
  std::vector<std::string> tokens;  // by id: the bytes of an ordinary token, the spelling of a special one
  std::vector<int32_t> specials;    // ids, rising
  std::vector<BpeMerge> merges;     // the first is the first to be applied

  bool is_special(int32_t id) const;
};

// GPT-2 writes a byte as a character that can be seen: 'A' is "A", a space is "Ġ". All 256 differ.
std::string visible_bytes(std::string_view bytes);
// Back; false when a character stands for no byte.
bool bytes_of_visible(std::string_view visible, std::string& bytes);

}  // namespace loom
