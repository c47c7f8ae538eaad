#include "core/base/random.h"

namespace loom {
namespace {

__extension__ using Wide = unsigned __int128;

uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t name_id(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325ull;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001B3ull;
  return h;
}

uint64_t hash_name(std::string_view text) { return splitmix(name_id(text)); }

uint64_t mix_hash(uint64_t a, uint64_t b) { return splitmix(splitmix(a) ^ (b + 0x632BE59BD9B4E019ull)); }

Philox::Philox(const RandomKey& key) {
  uint64_t h = splitmix(key.seed);
  h = mix_hash(h, static_cast<uint64_t>(key.purpose));
  h = mix_hash(h, key.site);
  h = mix_hash(h, key.step);
  const uint64_t low = mix_hash(mix_hash(h, key.sample), key.occurrence);
  const uint64_t high = mix_hash(mix_hash(h ^ 0xA5A5A5A5A5A5A5A5ull, key.occurrence), key.sample);
  key_.key[0] = static_cast<uint32_t>(low);
  key_.key[1] = static_cast<uint32_t>(low >> 32);
  key_.high[0] = static_cast<uint32_t>(high);
  key_.high[1] = static_cast<uint32_t>(high >> 32);
}

uint64_t Philox::below(uint64_t bound, uint64_t index) const {
  const auto b = block(index);
  const uint64_t r = (static_cast<uint64_t>(b[0]) << 32) | b[1];
  return static_cast<uint64_t>((static_cast<Wide>(r) * bound) >> 64);
}

uint64_t permute_index(const Philox& random, uint64_t size, uint64_t index) {
  int half = 1;
  while ((1ull << (2 * half)) < size) ++half;
  const uint64_t mask = (1ull << half) - 1;
  uint64_t x = index;
  do {  // cycle walking keeps it a bijection of [0, size)
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t f = random.block((round << 48) ^ right)[0] & mask;
      const uint64_t next = left ^ f;
      left = right;
      right = next;
    }
    x = (left << half) | right;
  } while (x >= size);
  return x;
}

}  // namespace loom
