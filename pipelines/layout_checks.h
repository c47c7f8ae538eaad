#pragma once
// Layouts that cannot be, or leave ranks without work: each a UserError in one line with the recipe's place and the
// values that can.
#include <string>
#include <vector>

#include "core/model/component_spec.h"
#include "core/step/world_layout.h"
#include "pipelines/recipe.h"

namespace loom {

// Ranks that share rows or layers (sp, tp) would lie on several machines, which `parallel.across_machines: false`
// forbids; ranks are numbered machine by machine, `local_world` on each.
void check_machines(const Recipe& recipe, const WorldLayout& layout, int local_world);

// What a component's declarations forbid: a lane that would split a sample through a unit that mixes it as a whole,
// more ranks than heads, layers that its plugin does not split or that would leave a rank empty. `origin`: who made
// it.
void check_component(const Recipe& recipe, const ComponentSpec& spec, const ComponentLayout& layout, int world,
                     const Declarations& declarations, const std::string& origin);

// "1", "2", "4": what divides `n`, up to `most`.
std::vector<std::string> divisors(int n, int64_t most);

}  // namespace loom
