// Little by little: a verdict is a dozen numbers and two names.
#include "core/data/wire.h"

#include <cstring>

#include "core/base/error.h"

namespace loom {

void ByteWriter::number(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(0x80 | (value & 0x7f));
  out_ += static_cast<char>(value);
}

void ByteWriter::integer(int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value);
  number(value < 0 ? ~(bits << 1) : bits << 1);
}

void ByteWriter::real(double value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out_.append(bytes, sizeof value);
}

void ByteWriter::text(std::string_view value) {
  number(value.size());
  out_.append(value);
}

void ByteWriter::integers(const std::vector<int64_t>& values) {
  number(values.size());
  int64_t last = 0;
  for (const int64_t value : values) {
    integer(value - last);
    last = value;
  }
}

std::string_view ByteReader::take(size_t bytes) {
  if (bytes > rest_.size()) throw CommError("the metadata of a step ends early");
  const std::string_view out = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return out;
}

uint64_t ByteReader::number() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint64_t byte = static_cast<unsigned char>(take(1).front());
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

int64_t ByteReader::integer() {
  const uint64_t value = number();
  return static_cast<int64_t>(value & 1 ? ~(value >> 1) : value >> 1);
}

double ByteReader::real() {
  double value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

std::string ByteReader::text() {
  const uint64_t size = number();
  return std::string(take(size));
}

std::vector<int64_t> ByteReader::integers() {
  const uint64_t count = number();
  if (count > rest_.size()) throw CommError("the metadata of a step ends early");
  std::vector<int64_t> out;
  out.reserve(count);
  int64_t last = 0;
  for (uint64_t i = 0; i < count; ++i) out.push_back(last += integer());
  return out;
}

void write_verdict(const Verdict& verdict, ByteWriter& out) {
  LOOM_CHECK(verdict.ok, "a skipped sample in a plan: ", verdict.name);
  out.number(verdict.position);
  out.number(verdict.sample);
  out.text(verdict.name);
  out.integer(verdict.tokens);
  out.integer(verdict.supervised);
  out.real(verdict.cost);
  out.number(verdict.items.size());
  for (const ItemPlace& place : verdict.items) {
    out.text(place.modality);
    out.integer(place.meta.tokens);
    out.integer(place.meta.outputs);
    out.real(place.meta.cost);
    out.integers(place.meta.grid);
    out.integer(place.begin);
    out.integer(place.slots);
    out.integers(place.cuts);
  }
}

Verdict read_verdict(ByteReader& in) {
  Verdict verdict;
  verdict.position = in.number();
  verdict.sample = in.number();
  verdict.name = in.text();
  verdict.tokens = in.integer();
  verdict.supervised = in.integer();
  verdict.cost = in.real();
  const uint64_t items = in.number();
  for (uint64_t i = 0; i < items; ++i) {
    ItemPlace& place = verdict.items.emplace_back();
    place.modality = in.text();
    place.meta.tokens = in.integer();
    place.meta.outputs = in.integer();
    place.meta.cost = in.real();
    place.meta.grid = in.integers();
    place.begin = in.integer();
    place.slots = in.integer();
    place.cuts = in.integers();
  }
  return verdict;
}

}  // namespace loom
