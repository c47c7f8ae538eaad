// Building a schema and validating a value against it. Validation never stops at the first mistake and always returns a
// complete map, so that later checks can go on and report theirs too.
#include "core/config/schema.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/schema_text.h"

namespace loom {
namespace {

const Mark kDefaultMark{"default", 0, 0};

class Validator {
 public:
  explicit Validator(Mistakes& mistakes) : mistakes_(mistakes) {}

  ConfigValue map(const ConfigValue& value, const Schema& schema) {
    ConfigValue result = ConfigValue::map();
    result.mark = value.mark;
    result.key_mark = value.key_mark;
    result.path = value.path;
    if (!value.is_null() && !value.is_map()) {
      mistakes_.add(value.mark, value.path, "expected a map ('key: value' lines), found " + value.found());
      return result;
    }
    if (value.is_map()) check_keys(value, schema);
    for (const Field& field : schema.fields()) add_field(value, field, result);
    if (value.is_map() && schema.is_open()) {
      for (const ConfigValue::Entry& entry : value.entries()) {
        if (!is_field(schema, entry.first)) result.set(entry.first, entry.second);
      }
    }
    return result;
  }

 private:
  static bool is_field(const Schema& schema, const std::string& name) {
    for (const Field& field : schema.fields()) {
      if (field.name == name) return true;
    }
    return false;
  }

  void check_keys(const ConfigValue& value, const Schema& schema) {
    if (schema.is_open()) return;
    std::vector<std::string> names;
    for (const Field& field : schema.fields()) names.push_back(field.name);
    for (const ConfigValue::Entry& entry : value.entries()) {
      if (is_field(schema, entry.first)) continue;
      std::string hint = did_you_mean(entry.first, names);
      if (hint.empty() && names.empty()) hint = "; no keys are expected here";
      if (hint.empty()) hint = "; known here: " + join(names, ", ");
      mistakes_.add(entry.second.where(), entry.second.path, "unknown key" + hint);
    }
  }

  void add_field(const ConfigValue& parent, const Field& field, ConfigValue& result) {
    const ConfigValue* given = parent.find(field.name);
    bool container =
        field.type == FieldType::section || field.type == FieldType::list || field.type == FieldType::map_of;
    bool empty_is_absent = container || (!field.required && field.fallback.is_null());
    if (given != nullptr && !(given->is_null() && empty_is_absent)) {
      ConfigValue checked = typed(*given, field);
      checked.mark = given->mark;
      checked.key_mark = given->key_mark;
      result.set(field.name, std::move(checked));
      return;
    }
    std::string path = child_path(parent.path, field.name);
    if (field.required) {
      const Mark& place = given != nullptr ? given->where() : parent.where();
      mistakes_.add(place, path, "missing; expected " + expected_text(field));
      return;
    }
    if (field.fallback.is_null()) return;
    ConfigValue value = field.fallback;
    if (field.type == FieldType::section) {
      value = ConfigValue::map();
      value.path = path;
      value.mark = given != nullptr ? given->where() : parent.where();
      value = map(value, *field.nested);
    }
    value.stamp(kDefaultMark);
    result.set(field.name, std::move(value));
  }

  ConfigValue wrong(const ConfigValue& value, const Field& field, const std::string& hint = "") {
    mistakes_.add(value.mark, value.path, "expected " + expected_text(field) + ", found " + value.found() + hint);
    return field.fallback.is_null() ? value : field.fallback;
  }

  ConfigValue typed(const ConfigValue& value, const Field& field) {
    using Kind = ConfigValue::Kind;
    switch (field.type) {
      case FieldType::boolean:
        return value.kind() == Kind::boolean ? value : wrong(value, field);
      case FieldType::integer:
        return value.kind() == Kind::integer && inside(value.as_number(), field.range) ? value : wrong(value, field);
      case FieldType::number: {
        if (value.kind() != Kind::integer && value.kind() != Kind::number) return wrong(value, field);
        return inside(value.as_number(), field.range) ? value : wrong(value, field);
      }
      case FieldType::string:
        return text(value, field);
      case FieldType::section:
        return map(value, *field.nested);
      case FieldType::list:
        return list(value, field);
      case FieldType::map_of:
        return free_map(value, field);
      case FieldType::any:
        return value;
    }
    return value;
  }

  static bool inside(double value, const Range& range) { return value >= range.min && value <= range.max; }

  // A string takes any scalar as it is written: "name: 2024" needs no quotes.
  ConfigValue text(const ConfigValue& value, const Field& field) {
    if (value.is_null() || value.is_list() || value.is_map()) return wrong(value, field);
    std::string written = value.text();
    if (!field.choices.empty()) {
      bool known = false;
      for (const std::string& choice : field.choices) known = known || choice == written;
      if (!known) return wrong(value, field, did_you_mean(written, field.choices));
    }
    ConfigValue result = ConfigValue::string(written);
    result.mark = value.mark;
    return result;
  }

  ConfigValue list(const ConfigValue& value, const Field& field) {
    if (!value.is_list()) return wrong(value, field);
    Field element;  // a list of lists takes anything inside
    element.type = field.element;
    element.nested = field.nested;
    ConfigValue result = ConfigValue::list();
    for (const ConfigValue& item : value.items()) {
      result.items().push_back(typed(item, element));
      result.items().back().mark = item.mark;
    }
    return result;
  }

  ConfigValue free_map(const ConfigValue& value, const Field& field) {
    if (!value.is_map()) return wrong(value, field);
    ConfigValue result = ConfigValue::map();
    for (const ConfigValue::Entry& entry : value.entries()) {
      ConfigValue checked = map(entry.second, *field.nested);
      result.set(entry.first, std::move(checked));
    }
    return result;
  }

  Mistakes& mistakes_;
};

Field make_field(std::string name, FieldType type, ConfigValue fallback, std::string doc) {
  Field field;
  field.name = std::move(name);
  field.type = type;
  field.fallback = std::move(fallback);
  field.doc = std::move(doc);
  return field;
}

}  // namespace

Schema& Schema::add(Field field) {
  for (const Field& other : fields_) LOOM_CHECK(other.name != field.name, "schema declares '", field.name, "' twice");
  fields_.push_back(std::move(field));
  return *this;
}

Field& Schema::last() {
  LOOM_CHECK(!fields_.empty(), "required() or optional() before any field");
  return fields_.back();
}

Schema& Schema::boolean(std::string name, bool fallback, std::string doc) {
  return add(make_field(std::move(name), FieldType::boolean, ConfigValue::boolean(fallback), std::move(doc)));
}

Schema& Schema::integer(std::string name, int64_t fallback, Range range, std::string doc) {
  Field field = make_field(std::move(name), FieldType::integer, ConfigValue::integer(fallback), std::move(doc));
  field.range = range;
  return add(std::move(field));
}

Schema& Schema::number(std::string name, double fallback, Range range, std::string doc) {
  Field field = make_field(std::move(name), FieldType::number, ConfigValue::number(fallback), std::move(doc));
  field.range = range;
  return add(std::move(field));
}

Schema& Schema::string(std::string name, std::string fallback, std::string doc) {
  return choice(std::move(name), std::move(fallback), {}, std::move(doc));
}

Schema& Schema::choice(std::string name, std::string fallback, std::vector<std::string> choices, std::string doc) {
  Field field =
      make_field(std::move(name), FieldType::string, ConfigValue::string(std::move(fallback)), std::move(doc));
  field.choices = std::move(choices);
  return add(std::move(field));
}

Schema& Schema::section(std::string name, Schema nested, std::string doc) {
  Field field = make_field(std::move(name), FieldType::section, ConfigValue::map(), std::move(doc));
  field.nested = std::make_shared<const Schema>(std::move(nested));
  return add(std::move(field));
}

Schema& Schema::list(std::string name, FieldType element, std::string doc) {
  LOOM_CHECK(element != FieldType::section && element != FieldType::map_of, "list '", name, "': use list_of for maps");
  Field field = make_field(std::move(name), FieldType::list, ConfigValue::list(), std::move(doc));
  field.element = element;
  return add(std::move(field));
}

Schema& Schema::list_of(std::string name, Schema nested, std::string doc) {
  Field field = make_field(std::move(name), FieldType::list, ConfigValue::list(), std::move(doc));
  field.element = FieldType::section;
  field.nested = std::make_shared<const Schema>(std::move(nested));
  return add(std::move(field));
}

Schema& Schema::map_of(std::string name, Schema nested, std::string doc) {
  Field field = make_field(std::move(name), FieldType::map_of, ConfigValue::map(), std::move(doc));
  field.nested = std::make_shared<const Schema>(std::move(nested));
  return add(std::move(field));
}

Schema& Schema::any(std::string name, std::string doc) {
  return add(make_field(std::move(name), FieldType::any, {}, std::move(doc)));
}

Schema& Schema::required() {
  last().required = true;
  last().fallback = {};
  return *this;
}

Schema& Schema::optional() {
  last().required = false;
  last().fallback = {};
  return *this;
}

Schema& Schema::open() {
  open_ = true;
  return *this;
}

ConfigValue validate(const ConfigValue& value, const Schema& schema, Mistakes& mistakes) {
  return Validator(mistakes).map(value, schema);
}

}  // namespace loom
