// Decoded pictures: pixels, orientation, and what is refused. Parity with PIL is tests/scripts/pictures.py.
#include "core/data/picture.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/core/data/picture_fixtures.h"

namespace loom::test {
namespace {

at::Tensor decoded(const std::string& bytes, const PictureOptions& options = {}) {
  const Media media = decode_picture(bytes, "a.x", "image", options);
  EXPECT_EQ(media.info.modality, "image");
  EXPECT_EQ(media.info.frames, 1);
  EXPECT_EQ(media.data.sizes(), (std::vector<int64_t>{1, media.info.height, media.info.width, media.info.channels}));
  EXPECT_TRUE(media.data.is_contiguous());
  return media.data[0];
}

std::string refusal(const std::string& bytes, const PictureOptions& options = {}) {
  try {
    decode_picture(bytes, "a.x", "image", options);
    return "";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
}

// The value that belongs at (y, x) of the upright picture, found as a viewer does: by walking along the two edges that
// the orientation names.
at::Tensor upright(const at::Tensor& stored, int orientation) {
  const bool swapped = orientation >= 5;
  const int64_t height = stored.size(0), width = stored.size(1);
  at::Tensor out = at::empty({swapped ? width : height, swapped ? height : width, stored.size(2)}, at::kByte);
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 6;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      const int64_t y = swapped ? column : row, x = swapped ? row : column;
      out[from_bottom ? out.size(0) - 1 - y : y][from_right ? out.size(1) - 1 - x : x].copy_(stored[row][column]);
    }
  }
  return out;
}

TEST(Picture, EveryFormatGivesItsPixels) {
  for (const PictureFixture& fixture : picture_fixtures()) {
    const at::Tensor pixels = decoded(fixture.bytes);
    EXPECT_EQ(pixels.sizes(), (std::vector<int64_t>{fixture.height, fixture.width, fixture.channels})) << fixture.name;
    if (fixture.exact) {
      EXPECT_TRUE(at::equal(pixels, pattern())) << fixture.name;
    }
  }
}

TEST(Picture, IsTurnedAsItsOrientationSays) {
  for (const char* name : {"png", "webp", "tiff", "jpeg", "progressive"}) {
    const at::Tensor stored = decoded(picture_fixture(name).bytes);
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const at::Tensor pixels = decoded(with_orientation(name, static_cast<uint64_t>(orientation)));
      EXPECT_TRUE(at::equal(pixels, upright(stored, orientation))) << name << " " << orientation;
    }
  }
}

TEST(Picture, CutAnywhereItIsRefused) {
  for (const PictureFixture& fixture : picture_fixtures()) {
    for (size_t size = 0; size < fixture.bytes.size(); ++size) {
      EXPECT_NE(refusal(fixture.bytes.substr(0, size)), "") << fixture.name << " cut to " << size;
    }
  }
}

TEST(Picture, ADamagedPngIsRefusedOrRead) {
  const std::string& whole = picture_fixture("png").bytes;
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
    refused += refusal(bytes, {.max_pixels = 100'000}).empty() ? 0 : 1;
  }
  EXPECT_EQ(refused, static_cast<int>(whole.size()));  // every byte is guarded
  std::string bytes = whole;
  bytes[45] = static_cast<char>(bytes[45] ^ 1);
  EXPECT_EQ(refusal(bytes), "a.x: cannot decode this PNG: the checksum of its IDAT chunk is wrong");
  EXPECT_EQ(refusal(whole + "and more"), "");
}

TEST(Picture, TooManyPixelsAreRefusedFromTheHeader) {
  std::string bytes = picture_fixture("png").bytes;
  bytes.replace(16, 8, big(60000, 4) + big(60000, 4));
  EXPECT_EQ(refusal(bytes), "a.x: 60,000 x 60,000 pixels; at most 100,000,000 are allowed (data.max_pixels)");
  EXPECT_EQ(refusal(picture_fixture("png").bytes, {.max_pixels = 15}), "");
  EXPECT_NE(refusal(picture_fixture("png").bytes, {.max_pixels = 14}), "");
}

TEST(Picture, EverythingElseIsOneLine) {
  EXPECT_EQ(refusal(""), "a.x: the file is empty; expected a picture");
  EXPECT_NE(refusal("no picture at all").find("a.x: not a picture"), std::string::npos);
  const std::string gif = refusal(gif_fixture());
  if (!gif.empty()) {
    EXPECT_NE(gif.find("a.x: GIF is not read"), std::string::npos) << gif;
  }
  const auto reading = [](const std::string& path) -> std::string {
    try {
      read_picture(path, "image");
      return "";
    } catch (const UserError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(reading("/no/such.png"), "/no/such.png: no such file");
  EXPECT_EQ(reading("/tmp"), "/tmp: is a folder; expected a file");
  EXPECT_EQ(reading("/dev/zero"), "/dev/zero: is not a regular file; expected a picture");
}

TEST(Picture, PnmOfEveryKindAndMaximum) {
  const auto values = [](const std::string& bytes) {
    const at::Tensor pixels = decoded(bytes).reshape(-1);
    return std::vector<uint8_t>(pixels.const_data_ptr<uint8_t>(), pixels.const_data_ptr<uint8_t>() + pixels.numel());
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(values("P1\n3 2\n101 0\n1 1"), (Bytes{0, 255, 0, 255, 0, 0}));
  EXPECT_EQ(values("P2 # grey\n2 1 100\n0 # half\n50"), (Bytes{0, 128}));
  EXPECT_EQ(values("P3 1 1 1000 0 500 1000"), (Bytes{0, 128, 255}));
  EXPECT_EQ(values(std::string("P4 9 1\n\x80\x80", 9)), (Bytes{0, 255, 255, 255, 255, 255, 255, 255, 0}));
  EXPECT_EQ(values(std::string("P5 2 1 3\n\x01\x03", 11)), (Bytes{85, 255}));
  EXPECT_EQ(values("P5 2 1 65535\n" + big(257, 2) + big(65535, 2)), (Bytes{1, 255}));
  EXPECT_EQ(refusal("P2 2 1 100\n0"), "a.x: cut off: 12 bytes, the PNM's pixels need more");
  EXPECT_NE(refusal("P2 2 1 100\n0 x"), "");
}

}  // namespace
}  // namespace loom::test
