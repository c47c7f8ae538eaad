#pragma once
// What a map of a recipe may hold, as data: it validates, documents (`plugin info`) and fills in defaults. Mistakes are
// collected, not thrown one by one, so a user sees all of a file at once.
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config_value.h"

namespace loom {

class Schema;

enum class FieldType { boolean = 1, integer, number, string, section, list, map_of, any };

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

struct Field {
  std::string name;
  FieldType type = FieldType::any;
  ConfigValue fallback;  // default; null together with required = false means "absent"
  bool required = false;
  Range range;                       // of integers and numbers, both ends included
  std::vector<std::string> choices;  // of strings; empty = any
  std::string doc;
  std::shared_ptr<const Schema> nested;  // of a section, of each value of a map_of, of each map in a list
  FieldType element = FieldType::any;    // of a list
};

class Schema {
 public:
  // Each adds one field. A field is optional with the given default unless required() follows it.
  Schema& boolean(std::string name, bool fallback, std::string doc);
  Schema& integer(std::string name, int64_t fallback, Range range, std::string doc);
  Schema& number(std::string name, double fallback, Range range, std::string doc);
  Schema& string(std::string name, std::string fallback, std::string doc);
  Schema& choice(std::string name, std::string fallback, std::vector<std::string> choices, std::string doc);
  Schema& section(std::string name, Schema nested, std::string doc);   // absent = all its defaults
  Schema& list(std::string name, FieldType element, std::string doc);  // default: empty
  Schema& list_of(std::string name, Schema nested, std::string doc);   // a list of maps
  Schema& map_of(std::string name, Schema nested, std::string doc);    // free keys, each value a map
  Schema& any(std::string name, std::string doc);                      // taken as it is
  Schema& required();                                                  // the field added last has no default
  Schema& optional();  // the field added last may be absent, without a default
  Schema& open();      // unknown keys are allowed and kept (someone else validates them)

  const std::vector<Field>& fields() const { return fields_; }
  bool is_open() const { return open_; }
  std::string describe(int indent = 2) const;  // one line per field: name type [range] = default  doc

 private:
  Schema& add(Field field);
  Field& last();

  std::vector<Field> fields_;
  bool open_ = false;
};

// Collects one-line messages "file:line:col: path: what; what was expected".
class Mistakes {
 public:
  void add(const Mark& mark, const std::string& path, const std::string& what);
  void add_line(std::string whole_line);  // its position is read from its beginning, "file:line[:col]: "
  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }  // sorted by position
  // UserError with all lines and a last line "3 mistakes in bad.yaml; nothing was started."
  void throw_if_any(const std::string& file) const;

 private:
  void insert(const Mark& mark, std::string line);

  std::vector<std::string> lines_;
  std::vector<Mark> marks_;  // of lines_
};

// Returns value with defaults filled in, in schema order. Unknown keys name the nearest field.
ConfigValue validate(const ConfigValue& value, const Schema& schema, Mistakes& mistakes);

}  // namespace loom
