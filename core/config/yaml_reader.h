#pragma once
// YAML to ConfigValue. The only place that knows yaml-cpp; everything above sees values with marks and paths.
#include <string>

#include "core/config/config_value.h"
#include "core/config/schema.h"

namespace loom {

// A dotted key is the same as nesting (a quoted one is taken literally), "<<" merges, ${VAR,default} inserts the
// environment. Text that is no YAML is a UserError of one line. Mistakes that leave a tree (a key given twice, a
// variable that is not set) go to mistakes, so that they are reported together with the schema's; without it they are
// thrown.
ConfigValue read_yaml_file(const std::string& path, Mistakes* mistakes = nullptr);
ConfigValue read_yaml_text(const std::string& text, const std::string& name, Mistakes* mistakes = nullptr);

}  // namespace loom
