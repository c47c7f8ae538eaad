#pragma once
// A value tree that remembers where each value stands. It is what crosses the plugin border, so that yaml-cpp stays a
// private matter of one file. Values are cheap to copy at the sizes of a recipe.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loom {

// Where something was written. Prints as "recipe.yaml:9:7"; "command line" for overrides, "default" for defaults.
struct Mark {
  std::string file;
  int line = 0;    // from 1; 0 = unknown
  int column = 0;  // from 1
  std::string str() const;
  bool known() const { return line > 0 || !file.empty(); }
};

class ConfigValue {
 public:
  enum class Kind { null = 1, boolean, integer, number, string, list, map };
  using Entry = std::pair<std::string, ConfigValue>;

  ConfigValue() = default;  // null
  static ConfigValue boolean(bool v);
  static ConfigValue integer(int64_t v);
  static ConfigValue number(double v);
  static ConfigValue string(std::string v);
  static ConfigValue list(std::vector<ConfigValue> items = {});
  static ConfigValue map(std::vector<Entry> entries = {});

  Kind kind() const { return kind_; }
  const char* kind_name() const;  // "a list", "a map", "an integer", ... for messages
  bool is_null() const { return kind_ == Kind::null; }
  bool is_map() const { return kind_ == Kind::map; }
  bool is_list() const { return kind_ == Kind::list; }

  // Typed reads. UserError with mark and path when the kind differs (an integer reads as a number).
  bool as_bool() const;
  int64_t as_int() const;
  double as_number() const;
  const std::string& as_string() const;
  const std::vector<ConfigValue>& items() const;
  const std::vector<Entry>& entries() const;

  // Maps keep the order in which they were written.
  const ConfigValue* find(std::string_view key) const;  // null pointer when absent
  ConfigValue* find(std::string_view key);
  const ConfigValue& at(std::string_view key) const;  // UserError when absent
  ConfigValue& set(std::string_view key, ConfigValue value);
  void erase(std::string_view key);
  std::vector<ConfigValue>& items();
  std::vector<Entry>& entries();

  // Short reads for validated maps: config.get_int("width").
  bool get_bool(std::string_view key) const { return at(key).as_bool(); }
  int64_t get_int(std::string_view key) const { return at(key).as_int(); }
  double get_number(std::string_view key) const { return at(key).as_number(); }
  const std::string& get_string(std::string_view key) const { return at(key).as_string(); }

  std::string text() const;   // scalars as they were written; for messages
  std::string found() const;  // "'fast'", "a list", "nothing": how a message names a value that does not fit
  void set_written(std::string written);  // the spelling of a boolean or a number in its file
  void place(std::string_view new_path);  // sets path, here and below
  void stamp(const Mark& new_mark);       // sets mark and key_mark, here and below
  const Mark& where() const;              // of the key when there is one, else of the value

  Mark mark;         // of the value
  Mark key_mark;     // of the key that holds it
  std::string path;  // "model.backbone.kv_heads"; list items as "data.train.0"

 private:
  [[noreturn]] void mismatch(const char* expected) const;

  Kind kind_ = Kind::null;
  bool bool_ = false;
  int64_t int_ = 0;
  double number_ = 0;
  std::string string_;
  std::vector<ConfigValue> items_;
  std::vector<Entry> entries_;
};

// Values only; marks, paths, spelling and the order of a map's keys do not count. An integer differs from a number.
bool operator==(const ConfigValue& a, const ConfigValue& b);

std::string child_path(std::string_view path, std::string_view key);

}  // namespace loom
