#pragma once
// Builds a ConfigValue from a stream of events: marks, dotted keys, keys given twice, merges, anchors, inserted
// variables.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/config/yaml_source.h"

namespace loom {

class TreeBuilder {
 public:
  TreeBuilder(const YamlSource& source, Mistakes& mistakes) : source_(source), mistakes_(mistakes) {}

  // Offsets are bytes of the source; anchor 0 = none. Plain text is typed by its spelling, quoted text is a string.
  void null(std::size_t offset, std::size_t anchor);
  void scalar(std::size_t offset, std::size_t anchor, const std::string& text, bool plain);
  void alias(std::size_t offset, std::size_t anchor);
  void begin(ConfigValue empty, std::size_t offset, std::size_t anchor);
  void end();

  bool empty() const { return !root_ || root_->is_null(); }
  ConfigValue take();  // the whole tree, with paths

 private:
  struct Key {
    std::string text;
    bool plain = false;
    Mark mark;
  };
  struct Frame {
    ConfigValue value;
    std::size_t anchor = 0;
    std::size_t offset = 0;
    std::optional<Key> key;           // read, its value is still to come
    std::vector<ConfigValue> merges;  // values of "<<"
  };

  bool expects_key() const { return !frames_.empty() && frames_.back().value.is_map() && !frames_.back().key; }
  std::string current_path() const;
  void add(ConfigValue value, std::size_t offset, std::size_t anchor);
  void add_entry(Frame& frame, ConfigValue value, std::size_t offset);
  void insert(ConfigValue& map, const std::vector<std::string>& parts, std::size_t i, const Mark& mark,
              ConfigValue value, const std::string& path);
  void merge(Frame& frame);
  void count(const ConfigValue& value, std::size_t offset);

  const YamlSource& source_;
  Mistakes& mistakes_;
  std::vector<Frame> frames_;
  std::map<std::size_t, ConfigValue> anchors_;
  std::optional<ConfigValue> root_;
  std::size_t nodes_ = 0;
};

}  // namespace loom
