#pragma once
// The pictures of chat samples: how a sample refers to one, and the picture itself. Nothing is downloaded.
#include <string>

#include "core/data/chat_json.h"
#include "core/data/picture.h"

namespace loom {

// "a.png", or the path, url or image of an object; `path` is that of the value, for messages. UserError for what is no
// reference and for addresses of other machines.
std::string media_reference(const Json& value, const std::string& path);
// A path (relative ones from `root`), "file://..." or "data:image/...;base64,...".
Media open_media(const std::string& reference, const std::string& root, const std::string& modality,
                 const PictureOptions& options);

}  // namespace loom
