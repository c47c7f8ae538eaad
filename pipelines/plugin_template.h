#pragma once
// Copies one of the template projects and gives it its name. The templates are ordinary sources of a plugin called
// new_plugin, so that they can be compiled as they are.
#include <string>
#include <vector>

namespace loom {

// <prefix>/share/omniloom/template, found from the core library: the same in a build tree and in an install tree.
std::string template_folder();
// Writes the project; returns the files written. UserError for an unknown kind, an unusable name, or a folder that is
// not empty.
std::vector<std::string> write_template(const std::string& templates, const std::string& kind, const std::string& name,
                                        const std::string& folder);

}  // namespace loom
