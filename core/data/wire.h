#pragma once
// Plan metadata as bytes, for other ranks. Integers take as many bytes as they need (seven bits each), and lists of
// cuts are differences, so that thousands of legal cuts cost about a byte each. Not a file format: both ends are one
// build.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/step_plan.h"

namespace loom {

class ByteWriter {
 public:
  void number(uint64_t value);
  void integer(int64_t value);  // small negative ones are short, too
  void real(double value);
  void text(std::string_view value);
  void integers(const std::vector<int64_t>& values);  // differences of neighbours
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// CommError when the bytes end early.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  uint64_t number();
  int64_t integer();
  double real();
  std::string text();
  std::vector<int64_t> integers();
  bool done() const { return rest_.empty(); }

 private:
  std::string_view take(size_t bytes);

  std::string_view rest_;
};

void write_verdict(const Verdict& verdict, ByteWriter& out);
Verdict read_verdict(ByteReader& in);

}  // namespace loom
