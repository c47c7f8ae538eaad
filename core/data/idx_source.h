#pragma once
// Pictures and labels in the IDX format (MNIST and its kin, plain or gzip), turned into captions by a template:
//   {type: idx, images: PATH, labels: PATH, names: [t-shirt, ...], caption: "a photo of {name}"}
// A sample is the picture, then the caption, which the model learns to write.
#include <memory>
#include <string>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/data/source.h"

namespace loom {

Schema idx_schema();
// Picture `index`, from 0, of an IDX file. UserError when the file or the picture does not exist.
Media read_idx_picture(const std::string& path, int64_t index, const std::string& modality);
std::unique_ptr<Source> make_idx_source(const ConfigValue& config, std::string name);

}  // namespace loom
