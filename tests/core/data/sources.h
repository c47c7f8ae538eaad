#pragma once
// Sources made from a recipe's text, as the program makes them, and samples as text to compare.
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/config/yaml_reader.h"
#include "core/data/source.h"

namespace loom::test {

// `entry` is the inside of a list item, on one line: "path: a.jsonl, weight: 2".
inline std::unique_ptr<Source> source_from(const std::string& entry) {
  const ConfigValue recipe = read_yaml_text("data:\n  train:\n    - {" + entry + "}\n", "recipe.yaml");
  ConfigValue item = recipe.at("data").at("train").items()[0];
  const ConfigValue type = source_type(item);
  item.set("type", type);
  Mistakes mistakes;
  const ConfigValue checked = validate(item, source_schema(type), mistakes);
  mistakes.throw_if_any("recipe.yaml");
  return make_source(checked, 0);
}

// "[user]<a.png>What?[/user][assistant]*Green.[/assistant]*": '*' stands before what is learned.
inline std::string shown(const std::vector<SamplePart>& parts) {
  std::string out, role;
  for (const SamplePart& part : parts) {
    const std::string star = part.supervised ? "*" : "";
    switch (part.kind) {
      case SamplePart::Kind::text:
        out += star + part.text;
        break;
      case SamplePart::Kind::media:
        out += part.media.data.defined() ? concat("<", part.media.info.height, "x", part.media.info.width, ">")
                                         : "<" + part.text + ">";
        break;
      case SamplePart::Kind::turn_begin:
        role = part.text;
        out += "[" + role + "]";
        break;
      case SamplePart::Kind::turn_end:
        out += "[/" + role + "]" + star;
        break;
    }
  }
  return out;
}

}  // namespace loom::test
