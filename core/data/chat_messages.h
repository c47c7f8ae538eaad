#pragma once
// One sample of a chat file: JSON in any of the forms that people have, to the parts of a sample. The form is
// recognised by the keys of each sample, so a file may mix them:
//   {"messages": [{"role": "user", "content": "<image>What is it?"}, ...], "images": ["a.png"]}    also content parts
//   {"conversations": [{"from": "human", "value": "..."}, ...], "image": "a.png"}                  ShareGPT, LLaVA
//   {"instruction": "...", "input": "...", "output": "..."}                                        Alpaca
//   {"image": "a.png", "caption": "..."}   {"text": "..."}                                         no turns, all
//   learned
// Pure: files are opened by chat_source.cpp.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/sample.h"

namespace loom {

// Media parts hold their reference (a path, "file://..." or "data:...") in `text`. UserError, one line without a place,
// that names key, what was expected and what was found.
std::vector<SamplePart> parse_chat(std::string_view json);

}  // namespace loom
