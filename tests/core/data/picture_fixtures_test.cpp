// The fixtures of the tests of pictures.
#include <ATen/ATen.h>

#include "core/base/error.h"
#include "tests/core/data/picture_fixtures.h"

namespace loom::test {
namespace {

std::string with_numbers(uint64_t value, int bytes, bool big_endian) {
  return big_endian ? big(value, bytes) : little(value, bytes);
}

}  // namespace

at::Tensor pattern() {
  at::Tensor pixels = at::empty({3, 5, 3}, at::kByte);
  auto* out = pixels.mutable_data_ptr<uint8_t>();
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 5; ++x) {
      for (const int value : {40 * x, 60 * y, 10 * x + 20 * y + 3}) *out++ = static_cast<uint8_t>(value);
    }
  }
  return pixels;
}

std::string big(uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string little(uint64_t value, int bytes) {
  const std::string turned = big(value, bytes);
  return {turned.rbegin(), turned.rend()};
}

const std::vector<PictureFixture>& picture_fixtures() {
  static const std::vector<PictureFixture> all = [] {
    std::string ppm = "P6\n# a comment\n5 3\n255\n";
    const at::Tensor pixels = pattern();
    ppm.append(reinterpret_cast<const char*>(pixels.const_data_ptr<uint8_t>()), 45);
    return std::vector<PictureFixture>{
        {"png", 5, 3, 3, true,
         from_hex("89504e470d0a1a0a0000000d4948445200000005000000030802000000d45452af0000001b4944415478da63646060d660e0"
                  "822316"
                  "061b1106062e3842e70300320301c5412878730000000049454e44ae426082")},
        {"webp", 5, 3, 3, true,
         from_hex(
             "524946464a000000574542505650384c3d0000002f0480000077303c0281649cfc69c651dab611740f33eefe6316cf7fe803002c5"
             "c2e976b01000053916cbcf7f06b64514a169564112ca2ff51ed3b719f00")},
        {"bmp", 5, 3, 3, true,
         from_hex("424d660000000000000036000000280000000500000003000000010018000000000030000000c40e0000c40e000000000000"
                  "0000000"
                  "02b78003578283f78504978785378a000173c00213c282b3c50353c783f3ca0000300000d00281700502100782b00a000")},
        {"tiff", 5, 3, 3, true,
         from_hex("49492a00080000000a0000010400010000000500000001010400010000000300000002010300030000008600000003010300"
                  "010000"
                  "000100000006010300010000000200000011010400010000008c000000150103000100000003000000160104000100000003"
                  "00000017"
                  "010400010000002d0000001c01030001000000010000000000000008000800080000000328000d500017780021a0002b003c"
                  "17283c21"
                  "503c2b783c35a03c3f00782b28783550783f787849a07853")},
        {"ppm", 5, 3, 3, true, ppm},
        {"jpeg", 10, 12, 1, false,
         from_hex("ffd8ffe000104a46494600010100000100010000ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d30"
                  "42605565645f555d5b6a7899816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffc0000b08000c000a0101"
                  "1100ffc400160001010100000000000000000000000000050204ffc4001b1000010501010000000000000000000000000102"
                  "0421310311ffdd00040001ffda0008010100003f003e344ca3ffd09489587fffd1d11b9b6a8fffd25939b7cc3fffd9")},
        {"progressive", 10, 12, 1, false,
         from_hex("ffd8ffe000104a46494600010100000100010000ffdb0043001b12141714111b1716171e1c1b2028422b28252528513a3d30"
                  "4260556"
                  "5645f555d5b6a7899816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffc2000b08000c000a01011100ffc"
                  "4001500"
                  "010100000000000000000000000000000304ffda00080101000000019dd5ff00ffc400181001010003000000000000000000"
                  "0000000"
                  "002011112ffda000801010001050299729c34ffc40014100100000000000000000000000000000020ffda0008010100063f0"
                  "21fffc4"
                  "0017100100030000000000000000000000000000011011ffda0008010100013f21a7030fffda00080101000000100fffc400"
                  "1810000"
                  "301010000000000000000000000000021310111ffda0008010100013f109a3160a233843fffd9")}};
  }();
  return all;
}

std::string gif_fixture() {
  return from_hex(
      "47494638376105000300830000a0785378784950783fa03c3f783c35503c2b28783500782b283c21003c17a0002b78002150001728000d00"
      "00"
      "030000002c0000000005000300000814001d3460b04041020405080c3860404000000101003b");
}

const PictureFixture& picture_fixture(const std::string& name) {
  for (const PictureFixture& fixture : picture_fixtures()) {
    if (name == fixture.name) return fixture;
  }
  throw InternalError("no fixture " + name);
}

std::string exif_block(uint64_t orientation, bool big_endian, uint64_t type) {
  const auto n = [&](uint64_t value, int bytes) { return with_numbers(value, bytes, big_endian); };
  const std::string value = type == 3 ? n(orientation, 2) + n(0, 2) : n(orientation, 4);
  return (big_endian ? "MM" : "II") + n(42, 2) + n(8, 4) + n(2, 2)  //
         + n(271, 2) + n(2, 2) + n(4, 4) + "abc" + std::string(1, '\0') + n(274, 2) + n(type, 2) + n(1, 4) + value +
         n(0, 4);
}

std::string with_orientation(const std::string& name, uint64_t orientation) {
  std::string bytes = picture_fixture(name).bytes;
  const std::string block = exif_block(orientation, orientation % 2 == 0);
  if (name == "png") return bytes.insert(33, big(block.size(), 4) + "eXIf" + block + "none");
  if (name == "webp") {
    std::string chunks = "VP8X" + little(10, 4) + little(8, 4) + little(4, 3) + little(2, 3) + bytes.substr(12) +
                         "EXIF" + little(block.size(), 4) + block;
    return "RIFF" + little(chunks.size() + 4, 4) + "WEBP" + chunks;
  }
  if (name == "tiff") {  // the tag of samples per pixel is kept, that of rows per strip is not needed
    const size_t at = bytes.find(little(278, 2) + little(4, 2));
    return bytes.replace(at, 12, little(274, 2) + little(3, 2) + little(1, 4) + little(orientation, 4));
  }
  return bytes.insert(2, "\xff\xe1" + big(block.size() + 8, 2) + std::string("Exif\0\0", 6) + block);
}

}  // namespace loom::test
