#pragma once
// What tests of plans share: a recipe that finds the tree's plugins, and contents for steps that were planned without.
#include <ATen/ATen.h>

#include <string>

#include "core/data/loader.h"
#include "core/parallel/memory_meter.h"
#include "tests/core/base/temp_folder.h"
#include "tests/paths.h"

namespace loom::test {

inline std::string recipe_file(const TempFolder& folder, std::string text) {
  const std::string mark = "PLUGINS";
  text.replace(text.find(mark), mark.size(), kPluginDir);
  return folder.write("recipe.yaml", text);
}

// Not metered.
inline LoadedStep with_values(LoadedStep step, int64_t vocab) {
  const CountMemory pause(false);
  int64_t next = 0;
  for (PreparedSample& sample : step.samples) {
    for (Tensor& media : sample.media) media = at::rand(media.sizes(), at::kFloat);
    for (int64_t& token : sample.tokens) token = next++ % vocab;
  }
  return step;
}

}  // namespace loom::test
