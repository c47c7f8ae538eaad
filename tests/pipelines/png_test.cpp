// Pictures as files: read back by a second, straight reading of the format; sizes within bounds.
#include "pipelines/png.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>

#include "core/base/error.h"

namespace loom {
namespace {

Tensor gradient_picture(int64_t height, int64_t width, int64_t channels) {
  const Tensor values = at::arange(height * width * channels, at::kLong) * 37 % 251;
  return values.to(at::kByte).view({height, width, channels});
}

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// A second reading of the format, as straight as possible: chunks, checksums, inflate, unfilter.
Tensor decode_png(const std::string& png) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  int64_t width = 0, height = 0, channels = 0;
  std::string packed;
  for (size_t at = 8; at < png.size();) {
    const uint32_t length = big_endian(png, at);
    const std::string body = png.substr(at + 4, 4 + length);
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())),
              big_endian(png, at + 8 + length));
    if (body.substr(0, 4) == "IHDR") {
      width = big_endian(body, 4);
      height = big_endian(body, 8);
      EXPECT_EQ(body[12], 8);
      channels = body[13] == 0 ? 1 : body[13] == 2 ? 3 : 4;
    }
    if (body.substr(0, 4) == "IDAT") packed += body.substr(4);
    at += 12 + length;
  }
  std::string rows(static_cast<size_t>(height * (width * channels + 1)), '\0');
  uLongf size = rows.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                       packed.size()),
            Z_OK);
  EXPECT_EQ(size, rows.size());
  Tensor out = at::zeros({height, width, channels}, at::kByte);
  uint8_t* pixels = out.mutable_data_ptr<uint8_t>();
  for (int64_t y = 0; y < height; ++y) {
    const auto* row = reinterpret_cast<const uint8_t*>(rows.data()) + y * (width * channels + 1);
    for (int64_t i = 0; i < width * channels; ++i) {
      uint8_t* here = pixels + y * width * channels + i;
      const int left = i >= channels ? here[-channels] : 0;
      const int up = y > 0 ? here[-width * channels] : 0;
      const int corner = y > 0 && i >= channels ? here[-width * channels - channels] : 0;
      int guess = row[0] == 1 ? left : row[0] == 2 ? up : 0;
      if (row[0] == 4) {
        const int p = left + up - corner;
        const int a = std::abs(p - left), b = std::abs(p - up), c = std::abs(p - corner);
        guess = a <= b && a <= c ? left : b <= c ? up : corner;
      }
      *here = static_cast<uint8_t>(row[1 + i] + guess);
    }
  }
  return out;
}

TEST(Png, RoundTrip) {
  for (const int64_t channels : {1, 3, 4}) {
    for (const Tensor& picture :
         {gradient_picture(28, 28, channels), gradient_picture(1, 5, channels), gradient_picture(9, 1, channels)}) {
      EXPECT_TRUE(at::equal(decode_png(encode_png(picture)), picture)) << picture.sizes();
    }
    const Tensor smooth = at::arange(64, at::kLong).view({8, 8, 1}).expand({8, 8, channels}).to(at::kByte);
    EXPECT_TRUE(at::equal(decode_png(encode_png(smooth)), smooth));
  }
  EXPECT_THROW(encode_png(at::zeros({4, 4, 2}, at::kByte)), InternalError);
}

TEST(Png, Base64) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST(Png, LargePicturesAreScaledDown) {
  EXPECT_LT(png_data_uri(gradient_picture(1200, 900, 3)).size(), 400u * 1024);
  EXPECT_EQ(png_data_uri(at::full({1000, 500, 3}, 77, at::kByte)),
            png_data_uri(at::full({320, 160, 3}, 77, at::kByte)));
}

TEST(Png, BytesThatAreNoTextAndBack) {
  std::string bytes;
  for (int i = 0; i < 700; ++i) bytes += static_cast<char>(i * 37);
  for (size_t length = 0; length < 40; ++length) {
    const std::string piece = bytes.substr(0, length);
    EXPECT_EQ(from_base64(base64(piece)), piece);
  }
  EXPECT_EQ(from_base64(base64(bytes)), bytes);
  EXPECT_THROW(from_base64("ab$d"), UserError);
}

TEST(Png, WithinANumberOfBytes) {
  const Tensor noise = at::randint(0, 256, {300, 400, 3}, at::kByte);
  const std::string all = encode_png_within(noise, 1000, 1 << 20);
  EXPECT_EQ(decode_png(all).sizes(), noise.sizes());
  const std::string less = encode_png_within(noise, 320, 20000);
  EXPECT_LE(less.size(), 20000u);
  const Tensor picture = decode_png(less);
  EXPECT_LT(picture.size(1), 320);
  EXPECT_NEAR(static_cast<double>(picture.size(1)) / static_cast<double>(picture.size(0)), 4.0 / 3, 0.05);
  EXPECT_EQ(decode_png(encode_png_within(noise, 320, 10)).size(1), 32) << "no smaller than 32 pixels";
  const Tensor small = at::randint(0, 256, {20, 20, 1}, at::kByte);
  EXPECT_TRUE(at::equal(decode_png(encode_png_within(small, 320, 100)), small));
}

}  // namespace
}  // namespace loom
