// Philox itself, and many of its numbers at once, as loops over small arrays that compilers turn into vector code,
// compiled for each instruction set below. Logarithm, sine and cosine are polynomials of our own, and nothing is
// contracted into fused multiply-adds: a number is the same to the bit whether it is made alone or with others, and by
// any processor.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/instruction_set.h"
#include "core/base/random.h"

namespace loom {
namespace {

#define LOOM_INLINE __attribute__((always_inline)) inline

constexpr uint64_t kOne = 0x3FF0000000000000ull;  // bits of 1.0
constexpr double kTwo52 = 4503599627370496.0;     // 2^52
constexpr double kRound = 6755399441055744.0;     // 1.5 * 2^52: adding it rounds to an integer
constexpr int64_t kBlocks = 64;                   // of Philox, at a time

// In [1, 2), from 52 of 64 bits.
LOOM_INLINE double from_one(uint32_t high, uint32_t low) {
  return std::bit_cast<double>(kOne | (static_cast<uint64_t>(high) << 20) | (low >> 12));
}

// log(x) for x in (0, 1]: x = m 2^e with m near 1, then the series of 2 artanh((m - 1) / (m + 1)).
LOOM_INLINE double logarithm(double x) {
  constexpr uint64_t kRootHalf = 0x3FE6A09E667F3BCDull, kOffset = 1024ull << 52;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t exponent = (bits - kRootHalf + kOffset) >> 52;  // e + 1024
  const double m = std::bit_cast<double>(bits - (exponent << 52) + kOffset);
  const double e = std::bit_cast<double>(0x4330000000000000ull | exponent) - (kTwo52 + 1024);
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 1.0 / 23;
  p = p * z + 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return e * 0.693147180559945309417 + 2 * (s + s * z * p);
}

// Box-Muller: two independent normal numbers from a block.
LOOM_INLINE void normal_pair(uint32_t a, uint32_t b, uint32_t c, uint32_t d, double& first, double& second) {
  const double radius = std::sqrt(-2 * logarithm(2 - from_one(a, b)));
  // The angle is (k + f) quarters of a circle, k whole, |f| <= 1/2.
  const double quarters = 4 * (from_one(c, d) - 1), shifted = quarters + kRound;
  const double x = (quarters - (shifted - kRound)) * 1.57079632679489661923, z = x * x;
  const uint64_t k = std::bit_cast<uint64_t>(shifted);
  double sine = 1.0 / -1307674368000.0;
  sine = sine * z + 1.0 / 6227020800.0;
  sine = sine * z - 1.0 / 39916800.0;
  sine = sine * z + 1.0 / 362880.0;
  sine = sine * z - 1.0 / 5040.0;
  sine = sine * z + 1.0 / 120.0;
  sine = sine * z - 1.0 / 6.0;
  sine = x + x * z * sine;
  double cosine = 1.0 / 20922789888000.0;
  cosine = cosine * z - 1.0 / 87178291200.0;
  cosine = cosine * z + 1.0 / 479001600.0;
  cosine = cosine * z - 1.0 / 3628800.0;
  cosine = cosine * z + 1.0 / 40320.0;
  cosine = cosine * z - 1.0 / 720.0;
  cosine = cosine * z + 1.0 / 24.0;
  cosine = 1 - z * (0.5 - z * cosine);
  const uint64_t odd = 0 - (k & 1), s = std::bit_cast<uint64_t>(sine), c_bits = std::bit_cast<uint64_t>(cosine);
  const uint64_t cos_bits = ((c_bits & ~odd) | (s & odd)) ^ (((k + 1) & 2) << 62);
  const uint64_t sin_bits = ((s & ~odd) | (c_bits & odd)) ^ ((k & 2) << 62);
  first = radius * std::bit_cast<double>(cos_bits);
  second = radius * std::bit_cast<double>(sin_bits);
}

struct Blocks {
  uint32_t a[kBlocks], b[kBlocks], c[kBlocks], d[kBlocks];
};

struct Block {
  uint32_t a, b, c, d;
};

LOOM_INLINE Block philox(const PhiloxKey& key, uint64_t counter) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = key.high[0], c3 = key.high[1], k0 = key.key[0], k1 = key.key[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

LOOM_INLINE void make_blocks(const PhiloxKey& key, uint64_t first, Blocks& out) {
  for (int64_t i = 0; i < kBlocks; ++i) {
    const Block block = philox(key, first + static_cast<uint64_t>(i));
    out.a[i] = block.a;
    out.b[i] = block.b;
    out.c[i] = block.c;
    out.d[i] = block.d;
  }
}

// Numbers 2 first ... of whole blocks.
LOOM_INLINE void normals_body(const PhiloxKey& key, uint64_t first, double* out) {
  Blocks w;
  make_blocks(key, first, w);
  for (int64_t i = 0; i < kBlocks; ++i) normal_pair(w.a[i], w.b[i], w.c[i], w.d[i], out[2 * i], out[2 * i + 1]);
}

LOOM_INLINE void uniforms_body(const PhiloxKey& key, uint64_t first, double* out) {
  Blocks w;
  make_blocks(key, first, w);
  for (int64_t i = 0; i < kBlocks; ++i) out[i] = from_one(w.a[i], w.b[i]) - 1;
}

using Fill = void (*)(const PhiloxKey&, uint64_t, double*);

void normals_generic(const PhiloxKey& key, uint64_t first, double* out) { normals_body(key, first, out); }
void uniforms_generic(const PhiloxKey& key, uint64_t first, double* out) { uniforms_body(key, first, out); }

#if defined(__x86_64__)
#if defined(__clang__)
#define LOOM_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define LOOM_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#define LOOM_AVX2 __attribute__((target("avx2")))
LOOM_AVX2 void normals_avx2(const PhiloxKey& key, uint64_t first, double* out) { normals_body(key, first, out); }
LOOM_AVX2 void uniforms_avx2(const PhiloxKey& key, uint64_t first, double* out) { uniforms_body(key, first, out); }
LOOM_AVX512 void normals_avx512(const PhiloxKey& key, uint64_t first, double* out) { normals_body(key, first, out); }
LOOM_AVX512 void uniforms_avx512(const PhiloxKey& key, uint64_t first, double* out) { uniforms_body(key, first, out); }

Fill best(Fill generic, Fill avx2, Fill avx512) {
  const InstructionSet set = best_instruction_set();
  return set == InstructionSet::avx512 ? avx512 : set == InstructionSet::avx2 ? avx2 : generic;
}

Fill normals_best() { return best(normals_generic, normals_avx2, normals_avx512); }
Fill uniforms_best() { return best(uniforms_generic, uniforms_avx2, uniforms_avx512); }
#else
Fill normals_best() { return normals_generic; }
Fill uniforms_best() { return uniforms_generic; }
#endif

// `per_block` numbers of each block; groups of kBlocks at fixed places, of which a part may be wanted.
void fill(Fill make, int64_t per_block, const PhiloxKey& key, uint64_t first, double* out, int64_t count) {
  const auto group = static_cast<uint64_t>(kBlocks * per_block);
  double numbers[2 * kBlocks];
  for (int64_t done = 0; done < count;) {
    const uint64_t at = first + static_cast<uint64_t>(done), begin = at / group * group;
    const auto skip = static_cast<int64_t>(at - begin);
    const int64_t n = std::min(static_cast<int64_t>(group) - skip, count - done);
    double* to = skip == 0 && n == static_cast<int64_t>(group) ? out + done : numbers;
    make(key, begin / static_cast<uint64_t>(per_block), to);
    if (to == numbers) std::copy(numbers + skip, numbers + skip + n, out + done);
    done += n;
  }
}

}  // namespace

std::array<uint32_t, 4> Philox::block(uint64_t counter) const {
  const Block made = philox(key_, counter);
  return {made.a, made.b, made.c, made.d};
}

double Philox::uniform(uint64_t index) const {
  const auto b = block(index);
  return from_one(b[0], b[1]) - 1;
}

double Philox::normal(uint64_t index) const {
  const auto b = block(index / 2);
  double pair[2];
  normal_pair(b[0], b[1], b[2], b[3], pair[0], pair[1]);
  return pair[index % 2];
}

void Philox::uniforms(uint64_t first, double* out, int64_t count) const {
  static const Fill make = uniforms_best();
  fill(make, 1, key_, first, out, count);
}

void Philox::normals(uint64_t first, double* out, int64_t count) const {
  static const Fill make = normals_best();
  fill(make, 2, key_, first, out, count);
}

}  // namespace loom
