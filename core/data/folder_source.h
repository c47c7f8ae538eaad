#pragma once
// A folder of pictures, with the folders in it:
//   {path: pictures}                                       captions beside the files: dog.jpg and dog.txt
//   {path: pictures, caption: "a photo of a {folder}"}     or made from the names
// A sample is the picture, then its caption, which the model learns to write. With `prompt` it is a conversation: the
// user shows the picture and asks, the assistant answers with the caption.
#include <memory>
#include <string>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/data/source.h"

namespace loom {

Schema folder_schema();
std::unique_ptr<Source> make_folder_source(const ConfigValue& config, std::string name);

}  // namespace loom
