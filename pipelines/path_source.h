#pragma once
// A source for a file or folder that somebody names on the command line instead of in a recipe.
#include <memory>
#include <string>

#include "core/data/picture.h"
#include "core/data/source.h"
#include "pipelines/recipe.h"

namespace loom {

// A .jsonl or .json file of samples, or a folder of pictures. With a recipe, options (prompt,
// caption, modality, ...) are those of its first source of the same type. A `caption` is for folders. UserError when it
// is neither.
std::shared_ptr<Source> source_of_path(const std::string& path, int number, const Recipe* like = nullptr,
                                       const std::string& caption = "");

// How a recipe's pictures are read: as its first source that says so, else the default.
PictureOptions picture_options(const Recipe& recipe);

}  // namespace loom
