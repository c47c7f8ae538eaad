#pragma once
// A section of a recipe may be a file of its own: "parallel: ../layouts/4.yaml", or "parallel=configs/layouts/4.yaml"
// on the command line. What the file holds takes the place of the path before anything is checked, so a run's resolved
// recipe holds it, too, and needs no file.
#include "core/config/config_value.h"
#include "core/config/schema.h"

namespace loom {

// Every section of `schema` that is a text: a path that starts from the folder of the file it stands in, from the
// working folder when it is given on the command line. False when a file is missing or holds no map: that is among the
// mistakes, the section is then absent, and nothing more can be said about the recipe.
bool insert_section_files(ConfigValue& recipe, const Schema& schema, Mistakes& mistakes);

}  // namespace loom
