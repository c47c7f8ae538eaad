#pragma once
// The words of an exception of any class in one line: LibTorch's carry stacks that tell people nothing.
#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace loom {

inline std::string error_words(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  const std::string words = torch != nullptr ? torch->what_without_backtrace() : error.what();
  return words.substr(0, words.find('\n'));
}

}  // namespace loom
