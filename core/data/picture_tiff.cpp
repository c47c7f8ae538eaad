// TIFF directories: of TIFF files (classic and BigTIFF), and of the EXIF blocks that other formats carry, which are
// TIFF files in small.
#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/picture_formats.h"

namespace loom {
namespace {

enum Tag : uint64_t {
  kWidth = 256,
  kHeight = 257,
  kBits = 258,
  kPhotometric = 262,
  kStripOffsets = 273,
  kOrientation = 274,
  kStripBytes = 279,
  kTileWidth = 322,
  kTileHeight = 323,
  kTileOffsets = 324,
  kTileBytes = 325,
  kExtraSamples = 338,
};

unsigned width_of(uint64_t type) {
  switch (type) {
    case 1:
      return 1;  // byte
    case 3:
      return 2;  // short
    case 4:
      return 4;  // long
    case 16:
      return 8;  // long of BigTIFF
    default:
      return 0;  // no unsigned number
  }
}

struct Entry {
  uint64_t count = 0, at = 0;  // of values; place of the first
  unsigned width = 0;          // bytes per value

  uint64_t value(const PictureBytes& in, uint64_t index = 0) const { return in.number(at + index * width, width); }
  // The place of a value's lowest byte.
  uint64_t low_byte(const PictureBytes& in) const { return in.order() == ByteOrder::big ? at + width - 1 : at; }
};

ByteOrder order_of(std::string_view bytes) { return bytes.substr(0, 2) == "II" ? ByteOrder::little : ByteOrder::big; }

bool is_big(const PictureBytes& in) { return in.u16(2) == 43; }

// Calls `use` with every number entry of the first directory.
void walk(const PictureBytes& in, const std::function<void(uint64_t tag, const Entry&)>& use) {
  const bool big = is_big(in);
  const uint64_t start = big ? in.number(8, 8) : in.u32(4);
  const unsigned place = big ? 8 : 4;  // bytes of a count and of a place
  const uint64_t entries = in.number(start, big ? 8 : 2), first = start + (big ? 8 : 2), size = 4 + 2 * place;
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = first + i * size;
    in.text(at, size);
    Entry entry;
    entry.width = width_of(in.u16(at + 2));
    entry.count = in.number(at + 4, place);
    if (entry.width == 0 || entry.count == 0) continue;
    entry.at = at + 4 + place;
    if (entry.count > place / entry.width) entry.at = in.number(entry.at, place);
    use(in.u16(at), entry);
  }
}

bool values_inside(const PictureBytes& in, const Entry& entry) {
  return entry.count <= in.size() && in.has(entry.at, entry.count * entry.width);
}

// The end of the last strip or tile; 0 when the lists are not there or not inside the file.
uint64_t end_of_pixels(const PictureBytes& in, const Entry& offsets, const Entry& lengths) {
  uint64_t end = 0;
  for (uint64_t i = 0; i < std::min(offsets.count, lengths.count); ++i) {
    const uint64_t offset = offsets.value(in, i), length = lengths.value(in, i);
    if (offset > INT64_MAX / 2 || length > INT64_MAX / 2) throw Damaged{"a piece of it lies nowhere"};
    end = std::max(end, offset + length);
  }
  return end;
}

}  // namespace

bool is_tiff(std::string_view bytes) {
  for (const std::string_view start : {std::string_view("II*\0", 4), std::string_view("MM\0*", 4),
                                       std::string_view("II+\0", 4), std::string_view("MM\0+", 4)}) {
    if (bytes.substr(0, 4) == start) return true;
  }
  return false;
}

int exif_orientation(std::string_view block) {
  if (block.substr(0, 6) == std::string_view("Exif\0\0", 6)) block.remove_prefix(6);
  if (!is_tiff(block)) return 1;
  const PictureBytes in(block, order_of(block));
  int orientation = 1;
  try {
    walk(in, [&](uint64_t tag, const Entry& entry) {
      if (tag != kOrientation) return;
      const uint64_t value = entry.value(in);
      if (value >= 1 && value <= 8) orientation = static_cast<int>(value);
    });
  } catch (const CutOff&) {  // what was found until there counts
  }
  return orientation;
}

void read_tiff_header(std::string_view bytes, PictureHeader& out) {
  const PictureBytes in(bytes, order_of(bytes));
  Entry offsets, lengths;
  uint64_t tile_width = 0, tile_height = 0;
  bool inside = true;
  walk(in, [&](uint64_t tag, const Entry& entry) {
    switch (tag) {
      case kWidth:
        out.width = static_cast<int64_t>(entry.value(in));
        break;
      case kHeight:
        out.height = static_cast<int64_t>(entry.value(in));
        break;
      case kBits:
        out.bits = static_cast<int64_t>(entry.value(in));
        break;
      case kPhotometric:
        out.white_is_zero = entry.value(in) == 0;
        out.grey = entry.value(in) <= 1;
        break;
      case kOrientation:
        if (const uint64_t value = entry.value(in); value >= 1 && value <= 8) {
          out.orientation = static_cast<int>(value);
          out.changes.emplace_back(entry.low_byte(in), 1);
        }
        break;
      case kExtraSamples:
        if (entry.value(in) == 2) out.changes.emplace_back(entry.low_byte(in), 1);
        break;
      case kTileWidth:
        tile_width = entry.value(in);
        break;
      case kTileHeight:
        tile_height = entry.value(in);
        break;
      case kStripOffsets:
      case kTileOffsets:
        offsets = entry;
        inside = inside && values_inside(in, entry);
        break;
      case kStripBytes:
      case kTileBytes:
        lengths = entry;
        inside = inside && values_inside(in, entry);
        break;
      default:
        break;
    }
  });
  // A decoder takes memory for a whole tile.
  const uint64_t most = 1ULL << 24;
  if (tile_width > most || tile_height > most || tile_width * tile_height > most) {
    throw Damaged{concat("tiles of ", tile_width, " x ", tile_height, " pixels")};
  }
  if (!inside) {
    out.missing = "the TIFF's list of pieces is not whole";
    return;
  }
  const uint64_t end = end_of_pixels(in, offsets, lengths);
  if (end > in.size()) out.missing = concat("the TIFF's pixels end at ", with_commas(static_cast<int64_t>(end)));
}

}  // namespace loom
