#pragma once
// The recipe's `parallel` section: how each component lies on the ranks. What depends on the number of ranks is judged
// when a run starts, since the recipe does not say how many there are.
#include <string>
#include <vector>

#include "core/comm/process_world.h"
#include "core/config/schema.h"
#include "core/model/component_spec.h"
#include "core/model/multimodal_model.h"
#include "core/step/world_layout.h"
#include "pipelines/recipe.h"

namespace loom {

Schema parallel_schema();
// The section "encoders" or "connectors" of a modality: its own, else the one named "*"; null when there is neither.
const ConfigValue* find_component_section(const ConfigValue& parallel, const char* group, const std::string& modality);
// Components that the model does not have.
void check_parallel_names(const ConfigValue& parallel, const std::vector<std::string>& components, Mistakes& mistakes);
// The layout on `world` ranks. UserError in one line when a size does not divide them.
WorldLayout read_layout(const Recipe& recipe, int world);
// Of one rank, whatever sizes the recipe asks for: which microbatches an encoder's pass serves.
WorldLayout read_passes(const Recipe& recipe);
// How ranks talk and how long they wait for each other.
WorldOptions read_world_options(const Recipe& recipe);
// One line per component: "encoders.image   4 lanes · items over up to 2 ranks · shard 4".
std::vector<std::string> layout_lines(const WorldLayout& layout, const MultimodalModel& model);

}  // namespace loom
