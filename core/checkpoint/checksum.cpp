// Folding by carry-less multiplication (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ",
// Intel 2009): four lanes of 16 bytes, then one, then Barrett reduction. The constants are those of the paper for the
// reflected polynomial 0xEDB88320.
#include "core/checkpoint/checksum.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace loom {
namespace {

uint32_t by_zlib(uint32_t crc, const unsigned char* data, size_t size) {
  return static_cast<uint32_t>(::crc32_z(crc, data, size));
}

#if defined(__x86_64__)
#define LOOM_FOLDING __attribute__((target("pclmul,sse4.1")))

constexpr size_t kLane = 16, kBlock = 4 * kLane;

LOOM_FOLDING inline __m128i load(const unsigned char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

LOOM_FOLDING inline __m128i fold(__m128i lane, __m128i by, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(lane, by, 0x00), high = _mm_clmulepi64_si128(lane, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Of a multiple of 16 bytes, at least 64. `crc` and the result without zlib's final inversion.
LOOM_FOLDING uint32_t folded(uint32_t crc, const unsigned char* data, size_t size) {
  const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  __m128i lanes[4];
  for (size_t i = 0; i < 4; ++i) lanes[i] = load(data + i * kLane);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  for (data += kBlock, size -= kBlock; size >= kBlock; data += kBlock, size -= kBlock) {
    for (size_t i = 0; i < 4; ++i) lanes[i] = fold(lanes[i], by_four, load(data + i * kLane));
  }
  __m128i all = lanes[0];
  for (size_t i = 1; i < 4; ++i) all = fold(all, by_one, lanes[i]);
  for (; size >= kLane; data += kLane, size -= kLane) all = fold(all, by_one, load(data));

  const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
  all = _mm_xor_si128(_mm_srli_si128(all, 8), _mm_clmulepi64_si128(all, by_one, 0x10));
  const __m128i to_64 = _mm_set_epi64x(0, 0x0163cd6124);
  all = _mm_xor_si128(_mm_srli_si128(all, 4), _mm_clmulepi64_si128(_mm_and_si128(all, low_words), to_64, 0x00));
  const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  __m128i rest = _mm_clmulepi64_si128(_mm_and_si128(all, low_words), barrett, 0x10);
  rest = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(all, rest), 1));
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return can;
}
#endif

}  // namespace

uint32_t extend_crc32(uint32_t crc, const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (size >= kBlock && can_fold()) {
    const size_t whole = size / kLane * kLane;
    crc = ~folded(~crc, bytes, whole);
    bytes += whole;
    size -= whole;
  }
#endif
  return by_zlib(crc, bytes, size);
}

}  // namespace loom
