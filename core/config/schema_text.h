#pragma once
// How a field reads in words: in messages ("an integer from 1 to 64") and in `plugin info`.
#include <string>

#include "core/config/schema.h"

namespace loom {

// "an integer from 1 to 64", "one of 'cosine', 'linear'", "a list of strings".
std::string expected_text(const Field& field);

}  // namespace loom
