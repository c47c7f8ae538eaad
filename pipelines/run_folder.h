#pragma once
// Where a run lives: runs/NAME-1, -2, ... or the folder that was asked for. Nothing of an earlier run is touched unless
// asked.
#include <string>

namespace loom {

// Creates the folder. With `requested` empty the next free runs/NAME-N. A folder that holds something is refused
// (UserError), or emptied when `replace` is set and it holds a run.
std::string make_run_folder(const std::string& name, const std::string& requested, bool replace);

// UserError when the folder holds no run (no recipe.resolved.yaml).
std::string resolved_recipe_of(const std::string& run);

inline constexpr const char* kResolvedRecipe = "recipe.resolved.yaml";
inline constexpr const char* kKeptTokenizer = "tokenizer.json";  // a copy of the recipe's, if that is a file

}  // namespace loom
