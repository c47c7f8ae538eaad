#pragma once
// Numbers in a file's bytes. Every read is checked: one behind the end throws CutOff, so a parser built on this cannot
// read past its input, whatever the input says.
#include <cstdint>
#include <string_view>

namespace loom {

// The bytes ended before what was asked for; read_picture_header turns it into a message.
struct CutOff {};

enum class ByteOrder { little = 1, big };

class PictureBytes {
 public:
  explicit PictureBytes(std::string_view bytes, ByteOrder order = ByteOrder::big) : bytes_(bytes), order_(order) {}

  uint64_t size() const { return bytes_.size(); }
  ByteOrder order() const { return order_; }
  bool has(uint64_t at, uint64_t count) const { return at <= size() && count <= size() - at; }
  std::string_view text(uint64_t at, uint64_t count) const {
    if (!has(at, count)) throw CutOff{};
    return bytes_.substr(at, count);
  }
  bool says(uint64_t at, std::string_view what) const { return has(at, what.size()) && text(at, what.size()) == what; }
  // An unsigned number of `count` bytes.
  uint64_t number(uint64_t at, unsigned count) const {
    const std::string_view raw = text(at, count);
    uint64_t value = 0;
    for (unsigned i = 0; i < count; ++i) {
      value = value << 8 | static_cast<uint8_t>(raw[order_ == ByteOrder::big ? i : count - 1 - i]);
    }
    return value;
  }
  uint64_t u8(uint64_t at) const { return number(at, 1); }
  uint64_t u16(uint64_t at) const { return number(at, 2); }
  uint64_t u32(uint64_t at) const { return number(at, 4); }

 private:
  std::string_view bytes_;
  ByteOrder order_;
};

}  // namespace loom
