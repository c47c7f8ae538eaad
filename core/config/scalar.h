#pragma once
// What an unquoted word means: one set of rules for files, overrides and the writer, so that whatever is written reads
// back.
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_value.h"

namespace loom {

// null, true/false, integers (1, -3, 1_000, 0x1f, 0o17), numbers (1.5, .5, 1e-5, .inf, .nan); anything else is a
// string: yes, no, on, 007, 1:30. The spelling is kept.
ConfigValue resolve_scalar(const std::string& text);

struct Interpolated {
  std::string text;
  bool whole = false;  // the text was one ${...} and nothing else: its value is read as if it stood there unquoted
};

// Replaces ${VAR,default} and ${VAR} by the environment; "$${" stands for "${". Problems are added, in words.
Interpolated interpolate(std::string_view text, std::vector<std::string>& problems);

}  // namespace loom
