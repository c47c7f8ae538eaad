// Chunks of length, type, payload and CRC; the pixels are one zlib stream of rows, each with the filter that leaves
// least to encode.
#include "pipelines/png.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

void append_u32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

void append_chunk(std::string& out, const std::string& type, const std::string& payload) {
  append_u32(out, static_cast<uint32_t>(payload.size()));
  const std::string body = type + payload;
  out += body;
  append_u32(out, static_cast<uint32_t>(
                      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
}

uint8_t paeth(int left, int up, int corner) {
  const int estimate = left + up - corner;
  const int dl = std::abs(estimate - left), du = std::abs(estimate - up), dc = std::abs(estimate - corner);
  return static_cast<uint8_t>(dl <= du && dl <= dc ? left : du <= dc ? up : corner);
}

// The row under one of PNG's filters; `above` is null in the first row.
std::string filtered_row(int filter, const uint8_t* row, const uint8_t* above, int64_t bytes, int64_t pixel) {
  std::string out(static_cast<size_t>(bytes + 1), static_cast<char>(filter));
  for (int64_t i = 0; i < bytes; ++i) {
    const int left = i >= pixel ? row[i - pixel] : 0;
    const int up = above != nullptr ? above[i] : 0;
    const int corner = above != nullptr && i >= pixel ? above[i - pixel] : 0;
    int guess = 0;
    if (filter == 1) guess = left;
    if (filter == 2) guess = up;
    if (filter == 4) guess = paeth(left, up, corner);
    out[static_cast<size_t>(i + 1)] = static_cast<char>(static_cast<uint8_t>(row[i] - guess));
  }
  return out;
}

int64_t cost(const std::string& row) {
  int64_t sum = 0;
  for (size_t i = 1; i < row.size(); ++i) sum += std::abs(static_cast<int>(static_cast<signed char>(row[i])));
  return sum;
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uLong>(bytes.size()), 9);
  LOOM_CHECK(status == Z_OK, "zlib says ", status);
  out.resize(size);
  return out;
}

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// A huge picture is thinned out first, so that its averaging costs no memory to speak of.
Tensor every_nth(const Tensor& pixels, int64_t step) {
  return pixels.slice(0, 0, pixels.size(0), step).slice(1, 0, pixels.size(1), step);
}

}  // namespace

Tensor scaled_down(const Tensor& picture, int64_t largest) {
  Tensor pixels = picture.dim() == 2 ? picture.unsqueeze(2) : picture;
  const int64_t side = std::max(pixels.size(0), pixels.size(1));
  if (side <= largest) return pixels;
  if (const int64_t step = side / (4 * largest); step > 1) return scaled_down(every_nth(pixels, step), largest);
  const int64_t height = std::max<int64_t>(pixels.size(0) * largest / side, 1);
  const int64_t width = std::max<int64_t>(pixels.size(1) * largest / side, 1);
  const Tensor planes = pixels.permute({2, 0, 1}).to(at::kFloat).contiguous();
  return at::adaptive_avg_pool2d(planes, {height, width}).round().clamp(0, 255).to(at::kByte).permute({1, 2, 0});
}

std::string encode_png(const Tensor& picture) {
  const Tensor pixels = (picture.dim() == 2 ? picture.unsqueeze(2) : picture).contiguous();
  LOOM_CHECK(pixels.dim() == 3 && pixels.scalar_type() == at::kByte && pixels.numel() > 0,
             "not a picture: ", picture.sizes());
  const int64_t height = pixels.size(0), width = pixels.size(1), channels = pixels.size(2);
  LOOM_CHECK(channels == 1 || channels == 3 || channels == 4, channels, " channels");
  const int64_t row_bytes = width * channels;
  const uint8_t* data = pixels.const_data_ptr<uint8_t>();
  std::string rows;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row = data + y * row_bytes;
    std::string best;
    int64_t lowest = 0;
    for (const int filter : {0, 1, 2, 4}) {
      std::string candidate = filtered_row(filter, row, y > 0 ? row - row_bytes : nullptr, row_bytes, channels);
      const int64_t its_cost = cost(candidate);
      if (!best.empty() && its_cost >= lowest) continue;
      lowest = its_cost;
      best = std::move(candidate);
    }
    rows += best;
  }
  std::string header;
  append_u32(header, static_cast<uint32_t>(width));
  append_u32(header, static_cast<uint32_t>(height));
  header += static_cast<char>(8);                                          // bits per sample
  header += static_cast<char>(channels == 1 ? 0 : channels == 3 ? 2 : 6);  // grey, RGB, RGBA
  header.append(3, '\0');                                                  // deflate, adaptive filters, not interlaced
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", deflated(rows));
  append_chunk(out, "IEND", "");
  return out;
}

std::string encode_png_within(const Tensor& picture, int64_t largest, size_t bytes) {
  constexpr int64_t kSmallest = 32;
  int64_t side = std::min(largest, std::max(picture.size(0), picture.size(1)));
  while (true) {
    std::string png = encode_png(scaled_down(picture, side));
    if (png.size() <= bytes || side <= kSmallest) return png;
    // Bytes grow with the area; a little less, so that the next try most often fits.
    const double shrink = 0.97 * std::sqrt(static_cast<double>(bytes) / static_cast<double>(png.size()));
    side = std::max(kSmallest, std::min(side * 9 / 10, static_cast<int64_t>(shrink * static_cast<double>(side))));
  }
}

std::string png_data_uri(const Tensor& picture, int64_t largest) {
  return png_data_uri(encode_png(scaled_down(picture, largest)));
}

std::string png_data_uri(const std::string& png) { return "data:image/png;base64," + base64(png); }

std::string base64(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    const size_t have = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) word = word << 8 | (j < have ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) out += j <= have ? kDigits[word >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string from_base64(const std::string& text) {
  std::string out;
  uint32_t word = 0;
  int bits = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const size_t digit = kDigits.find(c);
    LOOM_CHECK_USER(digit != std::string_view::npos, "not base64: ", quote_text(text));
    word = word << 6 | static_cast<uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(word >> bits & 0xff);
  }
  return out;
}

}  // namespace loom
