// The fast way counts what zlib counts, at every length and from every start.
#include "core/checkpoint/checksum.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "core/base/random.h"

namespace loom {
namespace {

TEST(Checksum, IsThatOfZlib) {
  const Philox random(RandomKey{.seed = 9});
  std::vector<unsigned char> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(random.below(256, i));
  const auto expected = [&](uint32_t crc, size_t from, size_t size) {
    return static_cast<uint32_t>(::crc32_z(crc, bytes.data() + from, size));
  };
  for (size_t size = 0; size < 700; ++size) {
    for (const size_t from : {0, 1, 7, 16}) {
      ASSERT_EQ(extend_crc32(0, bytes.data() + from, size), expected(0, from, size)) << size << " from " << from;
      ASSERT_EQ(extend_crc32(0xDEADBEEF, bytes.data() + from, size), expected(0xDEADBEEF, from, size)) << size;
    }
  }
  uint32_t crc = 0;
  for (size_t from = 0, piece = 1; from < bytes.size(); from += piece, piece = piece * 3 % 500 + 1) {
    piece = std::min(piece, bytes.size() - from);
    crc = extend_crc32(crc, bytes.data() + from, piece);
  }
  EXPECT_EQ(crc, expected(0, 0, bytes.size()));
  EXPECT_EQ(extend_crc32(0, "123456789", 9), 0xCBF43926u);
  const std::vector<unsigned char> zeros(1 << 16, 0);
  EXPECT_EQ(extend_crc32(0, zeros.data(), zeros.size()),
            static_cast<uint32_t>(::crc32_z(0, zeros.data(), zeros.size())));
}

}  // namespace
}  // namespace loom
