#pragma once
// What tests of files share beside the temporary folder: raw bytes, and errors that must be one line.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/core/base/temp_folder.h"

namespace loom::test {

inline std::string read_bytes(const std::string& path) { return slurp(path); }

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
}

// The text of the E that `action` throws: a single line.
template <class E, class Action>
std::string line_of(Action action) {
  std::string text = message_of<E>(action);
  EXPECT_EQ(text.find('\n'), std::string::npos) << "more than one line: " << text;
  return text;
}

}  // namespace loom::test

#define EXPECT_HAS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "'" << (part) << "' not in: " << (text)
