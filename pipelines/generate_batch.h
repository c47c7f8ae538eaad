#pragma once
// `omniloom generate --input FILE`: many prompts from a JSON file, answered in passes of bounded tokens.
#include <string>

#include "pipelines/answers.h"

namespace loom {

// Samples are chat lines, whose last answer is written anew, or {"prompt": "...", "image": "a.png"} (image, images,
// system and id may be given). Each becomes a line of JSON in `output`, or on stdout when that is empty: {"name",
// "prompt", "output"}, with "truth" where there was an answer; "error" instead of "output" where it cannot be answered.
// Returns the exit code: 2 when all failed.
int generate_batch(const Job& job, const AskOptions& options, const std::string& input, const std::string& output);

}  // namespace loom
