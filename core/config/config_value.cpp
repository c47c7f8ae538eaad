// The value tree itself. A value knows its place, so every typed read can say where a wrong value stands.
#include "core/config/config_value.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {

std::string Mark::str() const {
  if (line == 0) return file;
  return column == 0 ? concat(file, ":", line) : concat(file, ":", line, ":", column);
}

ConfigValue ConfigValue::boolean(bool v) {
  ConfigValue value;
  value.kind_ = Kind::boolean;
  value.bool_ = v;
  return value;
}

ConfigValue ConfigValue::integer(int64_t v) {
  ConfigValue value;
  value.kind_ = Kind::integer;
  value.int_ = v;
  return value;
}

ConfigValue ConfigValue::number(double v) {
  ConfigValue value;
  value.kind_ = Kind::number;
  value.number_ = v;
  return value;
}

ConfigValue ConfigValue::string(std::string v) {
  ConfigValue value;
  value.kind_ = Kind::string;
  value.string_ = std::move(v);
  return value;
}

ConfigValue ConfigValue::list(std::vector<ConfigValue> items) {
  ConfigValue value;
  value.kind_ = Kind::list;
  value.items_ = std::move(items);
  return value;
}

ConfigValue ConfigValue::map(std::vector<Entry> entries) {
  ConfigValue value;
  value.kind_ = Kind::map;
  value.entries_ = std::move(entries);
  return value;
}

const char* ConfigValue::kind_name() const {
  switch (kind_) {
    case Kind::null:
      return "nothing";
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return "an integer";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
  }
  return "an unknown value";
}

std::string ConfigValue::text() const {
  switch (kind_) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return !string_.empty() ? string_ : bool_ ? "true" : "false";
    case Kind::integer:
      return !string_.empty() ? string_ : std::to_string(int_);
    case Kind::number:
      return !string_.empty() ? string_ : shortest_double(number_);
    case Kind::string:
      return string_;
    case Kind::list: {
      std::vector<std::string> parts;
      for (const ConfigValue& item : items_) parts.push_back(item.text());
      return "[" + join(parts, ", ") + "]";
    }
    case Kind::map: {
      std::vector<std::string> parts;
      for (const Entry& entry : entries_) parts.push_back(entry.first + ": " + entry.second.text());
      return "{" + join(parts, ", ") + "}";
    }
  }
  return "";
}

std::string ConfigValue::found() const {
  return kind_ == Kind::null || kind_ == Kind::list || kind_ == Kind::map ? kind_name() : quote_text(text());
}

void ConfigValue::set_written(std::string written) {
  LOOM_CHECK(kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::number, "spelling of ", kind_name());
  string_ = std::move(written);
}

void ConfigValue::mismatch(const char* expected) const {
  std::string place = mark.str();
  if (!place.empty()) place += ": ";
  if (!path.empty()) place += path + ": ";
  throw UserError(concat(place, "expected ", expected, ", found ", found()));
}

bool ConfigValue::as_bool() const {
  if (kind_ != Kind::boolean) mismatch("true or false");
  return bool_;
}

int64_t ConfigValue::as_int() const {
  if (kind_ != Kind::integer) mismatch("an integer");
  return int_;
}

double ConfigValue::as_number() const {
  if (kind_ == Kind::integer) return static_cast<double>(int_);
  if (kind_ != Kind::number) mismatch("a number");
  return number_;
}

const std::string& ConfigValue::as_string() const {
  if (kind_ != Kind::string) mismatch("a string");
  return string_;
}

const std::vector<ConfigValue>& ConfigValue::items() const {
  if (kind_ != Kind::list) mismatch("a list");
  return items_;
}

std::vector<ConfigValue>& ConfigValue::items() {
  if (kind_ != Kind::list) mismatch("a list");
  return items_;
}

const std::vector<ConfigValue::Entry>& ConfigValue::entries() const {
  if (kind_ != Kind::map) mismatch("a map");
  return entries_;
}

std::vector<ConfigValue::Entry>& ConfigValue::entries() {
  if (kind_ != Kind::map) mismatch("a map");
  return entries_;
}

const ConfigValue* ConfigValue::find(std::string_view key) const {
  if (kind_ == Kind::null) return nullptr;
  for (const Entry& entry : entries()) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

ConfigValue* ConfigValue::find(std::string_view key) {
  return const_cast<ConfigValue*>(static_cast<const ConfigValue*>(this)->find(key));
}

const ConfigValue& ConfigValue::at(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (value != nullptr) return *value;
  std::string place = where().str();
  throw UserError(concat(place, place.empty() ? "" : ": ", child_path(path, key), ": missing"));
}

ConfigValue& ConfigValue::set(std::string_view key, ConfigValue value) {
  if (kind_ == Kind::null) kind_ = Kind::map;
  value.place(child_path(path, key));
  ConfigValue* old = find(key);
  if (old != nullptr) {
    *old = std::move(value);
    return *old;
  }
  entries_.emplace_back(std::string(key), std::move(value));
  return entries_.back().second;
}

void ConfigValue::erase(std::string_view key) {
  if (kind_ == Kind::null) return;
  std::erase_if(entries(), [key](const Entry& entry) { return entry.first == key; });
}

void ConfigValue::place(std::string_view new_path) {
  path = new_path;
  for (Entry& entry : entries_) entry.second.place(child_path(path, entry.first));
  for (std::size_t i = 0; i < items_.size(); ++i) items_[i].place(child_path(path, std::to_string(i)));
}

void ConfigValue::stamp(const Mark& new_mark) {
  mark = new_mark;
  key_mark = new_mark;
  for (Entry& entry : entries_) entry.second.stamp(new_mark);
  for (ConfigValue& item : items_) item.stamp(new_mark);
}

const Mark& ConfigValue::where() const { return key_mark.known() ? key_mark : mark; }

bool operator==(const ConfigValue& a, const ConfigValue& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case ConfigValue::Kind::null:
      return true;
    case ConfigValue::Kind::boolean:
      return a.as_bool() == b.as_bool();
    case ConfigValue::Kind::integer:
      return a.as_int() == b.as_int();
    case ConfigValue::Kind::number: {
      double x = a.as_number(), y = b.as_number();
      return x == y || (std::isnan(x) && std::isnan(y));
    }
    case ConfigValue::Kind::string:
      return a.as_string() == b.as_string();
    case ConfigValue::Kind::list:
      return a.items() == b.items();
    case ConfigValue::Kind::map: {
      if (a.entries().size() != b.entries().size()) return false;
      for (const ConfigValue::Entry& entry : a.entries()) {
        const ConfigValue* other = b.find(entry.first);
        if (other == nullptr || !(entry.second == *other)) return false;
      }
      return true;
    }
  }
  return false;
}

std::string child_path(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : concat(path, ".", key);
}

}  // namespace loom
