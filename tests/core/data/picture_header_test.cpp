// What is read from a picture's bytes before it is decoded.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/data/picture_formats.h"
#include "core/data/picture_header.h"
#include "tests/core/data/picture_fixtures.h"

namespace loom::test {
namespace {

const std::string kExif("Exif\0\0", 6);

std::string refusal(const std::string& bytes) {
  try {
    const PictureHeader header = read_picture_header(bytes, "a.x");
    return header.missing.empty() ? "" : cut_off_text("a.x", bytes.size(), header.missing);
  } catch (const UserError& error) {
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A JPEG of given parts between start and end marker; the frame is grey, 7 x 9.
std::string jpeg(const std::string& between, bool end = true) {
  const std::string frame = "\xff\xc0" + big(11, 2) + big(8, 1) + big(9, 2) + big(7, 2) + "\x01\x01\x11" + big(0, 1);
  return "\xff\xd8" + frame + between + (end ? "\xff\xd9" : "");
}
std::string scan(const std::string& data) {
  return "\xff\xda" + big(8, 2) + std::string("\x01\x01\x00\x00\x3f\x00", 6) + data;
}

std::string png_claiming(uint64_t width, uint64_t height) {
  return picture_fixture("png").bytes.substr(0, 16) + big(width, 4) + big(height, 4) +
         picture_fixture("png").bytes.substr(24);
}

TEST(PictureHeader, EveryFormatTellsItsSize) {
  for (const PictureFixture& fixture : picture_fixtures()) {
    const PictureHeader header = read_picture_header(fixture.bytes, fixture.name);
    EXPECT_EQ(header.width, fixture.width) << fixture.name;
    EXPECT_EQ(header.height, fixture.height) << fixture.name;
    EXPECT_EQ(header.bits, 8) << fixture.name;
    EXPECT_EQ(header.grey, fixture.channels == 1) << fixture.name;
    EXPECT_EQ(header.orientation, 1) << fixture.name;
    EXPECT_EQ(header.missing, "") << fixture.name;
  }
  const PictureHeader gif = read_picture_header(gif_fixture(), "a.gif");
  EXPECT_EQ(gif.format, PictureFormat::gif);
  EXPECT_EQ(gif.width, 5);
  EXPECT_EQ(gif.missing, "");
}

TEST(PictureHeader, EveryCutIsSeen) {
  for (const PictureFixture& fixture : picture_fixtures()) {
    for (size_t size = 0; size < fixture.bytes.size(); ++size) {
      const std::string text = refusal(fixture.bytes.substr(0, size));
      EXPECT_NE(text, "") << fixture.name << " cut to " << size;
      EXPECT_FALSE(contains(text, "\n")) << text;
    }
  }
  const std::string gif = gif_fixture();
  for (size_t size = 0; size < gif.size(); ++size) EXPECT_NE(refusal(gif.substr(0, size)), "") << size;
}

TEST(PictureHeader, DamagedBytesNeverHurt) {
  for (const PictureFixture& fixture : picture_fixtures()) {
    for (size_t at = 0; at < fixture.bytes.size(); ++at) {
      for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        std::string bytes = fixture.bytes;
        bytes[at] = static_cast<char>(value);
        refusal(bytes);
        refusal(bytes.substr(0, bytes.size() / 2));
      }
    }
  }
}

TEST(PictureHeader, SaysWhatIsMissing) {
  const std::string& whole = picture_fixture("jpeg").bytes;
  EXPECT_EQ(refusal(whole.substr(0, 196)), "a.x: cut off: 196 bytes, the JPEG has no end marker");
  EXPECT_EQ(refusal(whole.substr(0, 20)), "a.x: cut off: 20 bytes, the header of the JPEG is not whole");
  EXPECT_EQ(refusal(picture_fixture("png").bytes.substr(0, 80)), "a.x: cut off: 80 bytes, the PNG has no IEND chunk");
  EXPECT_EQ(refusal(picture_fixture("webp").bytes.substr(0, 81)), "a.x: cut off: 81 bytes, the WebP should have 82");
  EXPECT_EQ(refusal(picture_fixture("tiff").bytes.substr(0, 180)),
            "a.x: cut off: 180 bytes, the TIFF's pixels end at 185");
  EXPECT_TRUE(contains(refusal("hello"), "a.x: not a picture that can be decoded; expected PNG"));
  EXPECT_EQ(refusal(png_claiming(0, 3)), "a.x: the PNG claims 0 x 3 pixels");
}

TEST(PictureHeader, BytesBehindThePngDoNotMatter) {
  const std::string& whole = picture_fixture("png").bytes;
  EXPECT_EQ(plain_png(whole + std::string(40, 'W')), plain_png(whole));
}

TEST(PictureHeader, SizesAreNotBelievedBlindly) {
  const PictureHeader header = read_picture_header(png_claiming(60000, 50000), "a.png");
  EXPECT_EQ(header.width, 60000);
  EXPECT_EQ(header.height, 50000);
  EXPECT_NE(refusal("P6 1073741824 1073741824 65535\n"), "");
  EXPECT_TRUE(contains(refusal("P5 99999999999 1 255\n"), "a number above"));
  EXPECT_TRUE(contains(refusal("P5 1 1 65536\n1"), "a maximum of 65536"));
}

TEST(PictureHeader, JpegIsWalkedThroughItsScans) {
  EXPECT_EQ(refusal(jpeg(scan("ab"))), "");
  EXPECT_NE(refusal(jpeg(scan("ab"), false)), "");
  // A stuffed zero, restarts and fill bytes are no end; what follows a segment may be another scan.
  EXPECT_EQ(refusal(jpeg(scan(std::string("a\xff\x00g\xff\xd0h\xff\xd7i\xff\xff", 12)))), "");
  EXPECT_EQ(refusal(jpeg(scan("ab") + "\xff\xfe" + big(6, 2) + "note" + scan("cd"))), "");
  EXPECT_NE(refusal(jpeg(scan("ab") + "\xff\xfe" + big(6, 2) + "note" + scan("cd"), false)), "");
  // An end marker inside a segment (a thumbnail has one) is not the picture's.
  const std::string thumbnail = "\xff\xe1" + big(10, 2) + "abcd\xff\xd9" + "ef";
  EXPECT_NE(refusal(jpeg(thumbnail + scan("ab"), false)), "");
  EXPECT_EQ(refusal(jpeg(thumbnail + scan("ab"))), "");
  EXPECT_EQ(refusal(jpeg(scan("ab")) + "a second picture"), "");
  EXPECT_TRUE(contains(refusal(jpeg("")), "it ends before its picture"));
  EXPECT_TRUE(contains(refusal(jpeg("\xff\xfe" + big(1, 2))), "a segment of length 1"));
  std::string endless;
  for (int i = 0; i < 501; ++i) endless += scan("ab");
  EXPECT_TRUE(contains(refusal(jpeg(endless)), "more than 500 scans"));
}

TEST(PictureHeader, OrientationOfAnExifBlock) {
  for (uint64_t orientation = 1; orientation <= 8; ++orientation) {
    for (const bool order : {false, true}) {
      for (const uint64_t type : {3, 4}) {
        const std::string block = exif_block(orientation, order, type);
        EXPECT_EQ(exif_orientation(block), static_cast<int>(orientation));
        EXPECT_EQ(exif_orientation(kExif + block), static_cast<int>(orientation));
        for (size_t size = 0; size < block.size() - 6; ++size) exif_orientation(block.substr(0, size));
      }
    }
  }
  EXPECT_EQ(exif_orientation(exif_block(0, true)), 1);
  EXPECT_EQ(exif_orientation(exif_block(9, true)), 1);
  EXPECT_EQ(exif_orientation(""), 1);
  std::string far = exif_block(6, false);
  far.replace(4, 4, little(0xfffffff0, 4));
  EXPECT_EQ(exif_orientation(far), 1);
}

TEST(PictureHeader, OrientationOfEachFormat) {
  for (const char* name : {"png", "webp", "tiff", "jpeg", "progressive"}) {
    for (uint64_t orientation = 1; orientation <= 8; ++orientation) {
      const PictureHeader header = read_picture_header(with_orientation(name, orientation), name);
      EXPECT_EQ(header.orientation, static_cast<int>(orientation)) << name;
      EXPECT_EQ(header.missing, "") << name;
    }
  }
}

TEST(PictureHeader, AnAnimatedWebPIsRefused) {
  std::string bytes = with_orientation("webp", 1);
  bytes[20] |= 2;
  EXPECT_EQ(refusal(bytes), "a.x: cannot use this WebP: it is animated; expected a still picture");
}

}  // namespace
}  // namespace loom::test
