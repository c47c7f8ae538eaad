#pragma once
// Randomness is a function, not a state: Philox4x32-10 (Salmon et al., SC 2011) over a key made of what the number is
// *for*. The same (seed, purpose, site, step, sample, occurrence, index) gives the same number on any rank, layout,
// packing or resume.
#include <array>
#include <cstdint>
#include <string_view>

namespace loom {

enum class Purpose : uint32_t { init = 1, dropout, noise, timestep, shuffle, augment, sample };

struct RandomKey {
  uint64_t seed = 0;
  Purpose purpose = Purpose::init;
  uint64_t site = 0;        // where in the model, see hash_name
  uint64_t step = 0;        // optimizer step; 0 where steps do not matter
  uint64_t sample = 0;      // key of the sample
  uint64_t occurrence = 0;  // which item of the sample, which epoch, ...
};

// A stable 64-bit number for a name: FNV-1a as it is (sites), and mixed (sample keys, init).
uint64_t name_id(std::string_view text);
uint64_t hash_name(std::string_view text);
uint64_t mix_hash(uint64_t a, uint64_t b);

struct PhiloxKey {
  uint32_t key[2];
  uint32_t high[2];  // upper half of the counter
};

class Philox {
 public:
  explicit Philox(const RandomKey& key);
  std::array<uint32_t, 4> block(uint64_t counter) const;  // four words of 32 random bits
  uint32_t bits(uint64_t index) const { return block(index >> 2)[index & 3]; }
  double uniform(uint64_t index) const;  // in [0, 1), 52 bits
  double normal(uint64_t index) const;   // Box-Muller, two values per block
  // Numbers first ... first + count - 1, the same to the bit, much faster.
  void uniforms(uint64_t first, double* out, int64_t count) const;
  void normals(uint64_t first, double* out, int64_t count) const;
  uint64_t below(uint64_t bound, uint64_t index) const;  // in [0, bound)

 private:
  PhiloxKey key_;
};

// A pseudo-random permutation of [0, size): where does index go? O(1) memory (a Feistel network, cycle walking).
uint64_t permute_index(const Philox& random, uint64_t size, uint64_t index);

}  // namespace loom
