#pragma once
// Conversations, captions and texts as JSON lines or one JSON array:
//   {path: doors.jsonl}     (type: chat is understood from the name)
// The forms are those of chat_messages.h. Pictures are read when a sample is; paths are relative to the JSON file, or
// to `media_root`.
#include <memory>
#include <string>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/data/source.h"

namespace loom {

Schema chat_schema();
std::unique_ptr<Source> make_chat_source(const ConfigValue& config, std::string name);

}  // namespace loom
