// A walk over the markers of a JPEG, through the entropy coded data of every scan, to the end marker. A decoder fills
// what is missing with grey; only the walk tells.
#include <cstring>

#include "core/base/error.h"
#include "core/data/picture_formats.h"

namespace loom {
namespace {

constexpr int kMostScans = 500;  // each costs a pass over the picture; encoders write about ten

bool is_frame(uint64_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}
bool is_restart(uint64_t marker) { return marker >= 0xd0 && marker <= 0xd7; }

// The next 0xff at or after `at`, or the end.
uint64_t next_ff(std::string_view bytes, uint64_t at) {
  if (at >= bytes.size()) return bytes.size();
  const void* hit = std::memchr(bytes.data() + at, 0xff, bytes.size() - at);
  return hit == nullptr ? bytes.size() : static_cast<uint64_t>(static_cast<const char*>(hit) - bytes.data());
}

// Where the next marker's code is, behind stray bytes and fill; the end when there is none.
uint64_t next_marker(std::string_view bytes, uint64_t at) {
  at = next_ff(bytes, at);
  while (at < bytes.size() && bytes[at] == '\xff') ++at;
  return at;
}

// The marker that ends the entropy coded data from `at`: a stuffed zero or a restart does not.
uint64_t after_scan(std::string_view bytes, uint64_t at) {
  while (true) {
    at = next_marker(bytes, at);
    if (at >= bytes.size()) return at;
    const uint64_t code = static_cast<uint8_t>(bytes[at]);
    if (code != 0 && !is_restart(code)) return at;
    ++at;
  }
}

}  // namespace

void read_jpeg_header(std::string_view bytes, PictureHeader& out) {
  const PictureBytes in(bytes);
  bool frame = false, oriented = false;
  int scans = 0;
  uint64_t at = next_marker(bytes, 2);
  while (at < in.size()) {
    const uint64_t marker = in.u8(at);
    if (marker == 0xd9) {
      if (!frame || scans == 0) throw Damaged{"it ends before its picture"};
      return;
    }
    if (marker <= 1 || marker == 0xd8 || is_restart(marker)) {  // these have no contents
      at = next_marker(bytes, at + 1);
      continue;
    }
    if (!in.has(at + 1, 2)) break;
    const uint64_t length = in.u16(at + 1), data = at + 3;
    if (length < 2) throw Damaged{concat("a segment of length ", length, " at byte ", at)};
    if (!in.has(at + 1, length)) break;
    const std::string_view segment = in.text(data, length - 2);
    if (is_frame(marker) && !frame) {
      if (segment.size() < 6) throw Damaged{"its frame header is too short"};
      frame = true;
      out.bits = static_cast<int64_t>(in.u8(data));
      out.height = static_cast<int64_t>(in.u16(data + 1));
      out.width = static_cast<int64_t>(in.u16(data + 3));
      out.grey = in.u8(data + 5) == 1;
      out.inks = in.u8(data + 5) == 4;
    } else if (marker == 0xe1 && !oriented && segment.substr(0, 6) == std::string_view("Exif\0\0", 6)) {
      oriented = true;
      out.orientation = exif_orientation(segment);
    }
    at += 1 + length;
    if (marker == 0xda) {
      if (!frame) throw Damaged{"a scan before its frame header"};
      if (++scans > kMostScans) throw Damaged{concat("it has more than ", kMostScans, " scans")};
      at = after_scan(bytes, at);
    } else {
      at = next_marker(bytes, at);
    }
  }
  if (!frame) throw CutOff{};
  out.missing = "the JPEG has no end marker";
}

}  // namespace loom
