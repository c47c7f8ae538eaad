// Words for fields, for messages and for documentation; the schema is the only source of both.
#include "core/config/schema_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/text.h"

namespace loom {
namespace {

std::string bound_text(double value) {
  if (value != std::floor(value) || std::abs(value) > 1e15) return shortest_double(value);
  return std::to_string(static_cast<int64_t>(value));
}

const char* type_name(FieldType type) {
  switch (type) {
    case FieldType::boolean:
      return "bool";
    case FieldType::integer:
      return "int";
    case FieldType::number:
      return "number";
    case FieldType::string:
      return "string";
    case FieldType::section:
      return "map";
    case FieldType::list:
      return "list";
    case FieldType::map_of:
      return "map";
    case FieldType::any:
      return "any";
  }
  return "?";
}

const char* plural_name(FieldType type) {
  switch (type) {
    case FieldType::boolean:
      return "booleans";
    case FieldType::integer:
      return "integers";
    case FieldType::number:
      return "numbers";
    case FieldType::string:
      return "strings";
    case FieldType::section:
    case FieldType::map_of:
      return "maps";
    case FieldType::list:
      return "lists";
    case FieldType::any:
      return "values";
  }
  return "values";
}

std::string range_words(const Range& range) {
  bool low = std::isfinite(range.min), high = std::isfinite(range.max);
  if (low && high) return " from " + bound_text(range.min) + " to " + bound_text(range.max);
  if (low) return " of at least " + bound_text(range.min);
  return high ? " of at most " + bound_text(range.max) : "";
}

std::string default_text(const ConfigValue& value) {
  bool bare = value.kind() != ConfigValue::Kind::string || value.text().find_first_of(" ,:") == std::string::npos;
  return value.text().empty() ? "''" : bare ? value.text() : quote_text(value.text());
}

// "int [1..64] = 4", "cosine|linear = cosine", "list of maps", "string, required".
std::string shape_text(const Field& field) {
  std::string out = field.choices.empty() ? type_name(field.type) : join(field.choices, "|");
  if (field.type == FieldType::list) out = std::string("list of ") + plural_name(field.element);
  if (field.type == FieldType::map_of) out = "map of maps";
  bool low = std::isfinite(field.range.min), high = std::isfinite(field.range.max);
  if (low || high) {
    out += " [" + (low ? bound_text(field.range.min) : "") + ".." + (high ? bound_text(field.range.max) : "") + "]";
  }
  bool container = field.type == FieldType::section || field.type == FieldType::list || field.type == FieldType::map_of;
  if (field.required) return out + ", required";
  if (field.fallback.is_null()) return field.type == FieldType::any ? out : out + ", optional";
  return container ? out : out + " = " + default_text(field.fallback);
}

}  // namespace

std::string expected_text(const Field& field) {
  switch (field.type) {
    case FieldType::boolean:
      return "true or false";
    case FieldType::integer:
      return "an integer" + range_words(field.range);
    case FieldType::number:
      return "a number" + range_words(field.range);
    case FieldType::string: {
      if (field.choices.empty()) return "a string";
      std::vector<std::string> names;
      for (const std::string& choice : field.choices) names.push_back(quote_text(choice));
      return names.size() == 1 ? names[0] : "one of " + join(names, ", ");
    }
    case FieldType::section:
      return "a map ('key: value' lines)";
    case FieldType::list:
      return std::string("a list of ") + plural_name(field.element);
    case FieldType::map_of:
      return "a map of maps";
    case FieldType::any:
      return "a value";
  }
  return "a value";
}

std::string Schema::describe(int indent) const {
  std::size_t name_width = 0, shape_width = 0;
  for (const Field& field : fields_) {
    name_width = std::max(name_width, utf8_columns(field.name));
    shape_width = std::max(shape_width, std::min<std::size_t>(32, utf8_columns(shape_text(field))));
  }
  std::string out;
  for (const Field& field : fields_) {
    std::string shape = shape_text(field);
    std::string line(static_cast<std::size_t>(indent), ' ');
    line += field.name + std::string(name_width - utf8_columns(field.name) + 2, ' ') + shape;
    if (!field.doc.empty()) {
      std::size_t used = utf8_columns(shape);
      line += std::string(used < shape_width ? shape_width - used + 2 : 2, ' ') + field.doc;
    }
    out += line + "\n";
    if (field.nested) out += field.nested->describe(indent + 2);
  }
  return out;
}

}  // namespace loom
