#include "core/data/bpe_model.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace loom {
namespace {

// Printable bytes of Latin-1 stand for themselves; the others get U+0100, U+0101, ... in their order.
const std::array<std::string, 256>& alphabet() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> out;
    int other = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool shown = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int code = shown ? byte : other++;
      std::string& character = out[static_cast<size_t>(byte)];
      if (code >= 0x80) character += static_cast<char>(0xc0 | code >> 6);
      character += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
    }
    return out;
  }();
  return table;
}

const std::unordered_map<std::string_view, char>& letters() {
  static const std::unordered_map<std::string_view, char> table = [] {
    std::unordered_map<std::string_view, char> out;
    for (size_t byte = 0; byte < 256; ++byte) out.emplace(alphabet()[byte], static_cast<char>(byte));
    return out;
  }();
  return table;
}

}  // namespace

bool BpeModel::is_special(int32_t id) const { return std::binary_search(specials.begin(), specials.end(), id); }

std::string visible_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += alphabet()[static_cast<unsigned char>(byte)];
  return out;
}

bool bytes_of_visible(std::string_view visible, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < visible.size();) {
    const size_t size = static_cast<unsigned char>(visible[at]) < 0x80 ? 1 : 2;
    const auto found = letters().find(visible.substr(at, size));
    if (found == letters().end()) return false;
    bytes += found->second;
    at += size;
  }
  return true;
}

}  // namespace loom
