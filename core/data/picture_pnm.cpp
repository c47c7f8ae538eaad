// PBM, PGM and PPM, plain and binary, decoded here: OpenCV 4.6 leaves a maximum other than 255 or 65535 unscaled, mixes
// up the bytes of wide samples and refuses a plain file whose last number ends with the file.
#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/data/picture_formats.h"

namespace loom {
namespace {

constexpr int64_t kMostNumber = int64_t{1} << 30;  // so that no product of sizes overflows

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Numbers with spaces and comments between them.
class Numbers {
 public:
  Numbers(std::string_view bytes, uint64_t at) : bytes_(bytes), at_(at) {}

  uint64_t at() const { return at_; }
  // False at the end of the bytes.
  bool skip_space() {
    while (at_ < bytes_.size() && (is_space(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') {
        at_ = std::min(bytes_.find('\n', at_), bytes_.size());
      } else {
        ++at_;
      }
    }
    return at_ < bytes_.size();
  }
  int64_t next(bool one_digit = false) {
    if (!skip_space()) throw CutOff{};
    if (!is_digit(bytes_[at_])) throw Damaged{concat("no number at byte ", at_)};
    int64_t value = 0;
    do {
      value = value * 10 + (bytes_[at_++] - '0');
      if (value > kMostNumber) throw Damaged{concat("a number above ", kMostNumber, " at byte ", at_)};
    } while (!one_digit && at_ < bytes_.size() && is_digit(bytes_[at_]));
    return value;
  }

 private:
  std::string_view bytes_;
  uint64_t at_;
};

struct Pnm {
  int64_t width = 0, height = 0, most = 1, channels = 1;
  bool plain = false, bitmap = false;
  uint64_t data = 0;  // place of the first sample

  int64_t samples() const { return width * height * channels; }
  int64_t row_bytes() const { return bitmap ? (width + 7) / 8 : width * channels * (most > 255 ? 2 : 1); }
};

Pnm read_start(std::string_view bytes) {
  Pnm p;
  const char kind = bytes[1];
  p.plain = kind <= '3';
  p.bitmap = kind == '1' || kind == '4';
  p.channels = kind == '3' || kind == '6' ? 3 : 1;
  Numbers numbers(bytes, 2);
  p.width = numbers.next();
  p.height = numbers.next();
  if (!p.bitmap) p.most = numbers.next();
  if (p.most < 1 || p.most > 65535) throw Damaged{concat("a maximum of ", p.most, "; expected 1 to 65535")};
  p.data = numbers.at() + (p.plain ? 0 : 1);
  return p;
}

// Calls use(index, sample) for each; false when they end too early.
template <class Use>
bool each_plain(std::string_view bytes, const Pnm& p, const Use& use) {
  Numbers numbers(bytes, p.data);
  for (int64_t i = 0; i < p.samples(); ++i) {
    if (!numbers.skip_space()) return false;
    use(i, numbers.next(p.bitmap));
  }
  return true;
}

uint8_t scaled(int64_t sample, const Pnm& p) {
  const int64_t value = std::min(sample, p.most);
  if (p.bitmap) return value == 0 ? 255 : 0;  // 1 is black
  return static_cast<uint8_t>((value * 510 + p.most) / (2 * p.most));
}

}  // namespace

bool is_pnm(std::string_view bytes) {
  return bytes.size() >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
         (is_space(bytes[2]) || bytes[2] == '#');
}

void read_pnm_header(std::string_view bytes, PictureHeader& out) {
  const Pnm p = read_start(bytes);
  out.width = p.width;
  out.height = p.height;
  out.grey = p.channels == 1;
  out.bits = p.bitmap ? 1 : p.most > 255 ? 16 : 8;
  // A plain sample takes a byte at least, so a huge claim is answered without a walk.
  const uint64_t least = static_cast<uint64_t>(p.plain ? p.width : p.row_bytes()) * static_cast<uint64_t>(p.height);
  const bool whole = p.data <= bytes.size() && bytes.size() - p.data >= least;
  if (p.plain && whole ? !each_plain(bytes, p, [](int64_t, int64_t) {}) : !whole) {
    out.missing =
        concat("the PNM's pixels need ", p.plain ? "more" : with_commas(static_cast<int64_t>(p.data + least)));
  }
}

Tensor decode_pnm(std::string_view bytes) {
  const Pnm p = read_start(bytes);
  Tensor pixels = at::empty({p.height, p.width, p.channels}, at::kByte);
  uint8_t* out = pixels.mutable_data_ptr<uint8_t>();
  if (p.plain) {
    each_plain(bytes, p, [&](int64_t i, int64_t sample) { out[i] = scaled(sample, p); });
    return pixels;
  }
  const PictureBytes in(bytes);
  const unsigned width = p.most > 255 ? 2 : 1;
  for (int64_t y = 0; y < p.height; ++y) {
    const uint64_t row = p.data + static_cast<uint64_t>(y * p.row_bytes());
    for (int64_t x = 0; x < p.width * p.channels; ++x) {
      const auto at = static_cast<uint64_t>(x);
      const uint64_t sample = p.bitmap ? in.u8(row + at / 8) >> (7 - at % 8) & 1 : in.number(row + at * width, width);
      *out++ = scaled(static_cast<int64_t>(sample), p);
    }
  }
  return pixels;
}

}  // namespace loom
