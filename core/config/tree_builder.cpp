// A map made by a dotted key has no mark until the map itself is written; that is how "a.b: 1" and "a: {c: 2}" may
// stand side by side while "a: {b: 1}" and "a: {c: 2}" are a key given twice.
#include "core/config/tree_builder.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/scalar.h"

namespace loom {
namespace {

constexpr std::size_t kDeepest = 100;
constexpr std::size_t kMostNodes = 1000000;  // aliases of aliases grow fast

std::size_t node_count(const ConfigValue& value) {
  std::size_t count = 1;
  if (value.is_map()) {
    for (const ConfigValue::Entry& entry : value.entries()) count += node_count(entry.second);
  }
  if (value.is_list()) {
    for (const ConfigValue& item : value.items()) count += node_count(item);
  }
  return count;
}

void fill_marks(ConfigValue& value) {
  if (!value.mark.known()) value.mark = value.key_mark;
  if (value.is_map()) {
    for (ConfigValue::Entry& entry : value.entries()) fill_marks(entry.second);
  }
  if (value.is_list()) {
    for (ConfigValue& item : value.items()) fill_marks(item);
  }
}

}  // namespace

std::string TreeBuilder::current_path() const {
  std::string path;
  for (const Frame& frame : frames_) {
    if (frame.value.is_list()) {
      path = child_path(path, std::to_string(frame.value.items().size()));
    } else if (frame.key) {
      path = child_path(path, frame.key->text);
    }
  }
  return path;
}

void TreeBuilder::null(std::size_t offset, std::size_t anchor) {
  if (expects_key()) source_.fail(offset, "a key is missing before ':'");
  add(ConfigValue(), offset, anchor);
}

void TreeBuilder::scalar(std::size_t offset, std::size_t anchor, const std::string& text, bool plain) {
  if (expects_key()) {
    frames_.back().key = Key{text, plain, source_.mark_at(offset)};
    if (anchor != 0) anchors_[anchor] = ConfigValue::string(text);
    return;
  }
  std::vector<std::string> problems;
  Interpolated inserted = interpolate(text, problems);
  for (const std::string& problem : problems) mistakes_.add(source_.mark_at(offset), current_path(), problem);
  bool typed = plain || inserted.whole;
  add(typed ? resolve_scalar(inserted.text) : ConfigValue::string(inserted.text), offset, anchor);
}

void TreeBuilder::alias(std::size_t offset, std::size_t anchor) {
  auto found = anchors_.find(anchor);
  if (found == anchors_.end()) source_.fail(offset, "an alias may not stand inside the value that it names");
  if (expects_key()) source_.fail(offset, "a key may not be an alias");
  count(found->second, offset);
  ConfigValue copy = found->second;
  add(std::move(copy), offset, 0);
}

void TreeBuilder::begin(ConfigValue empty, std::size_t offset, std::size_t anchor) {
  if (expects_key()) source_.fail(offset, "a key must be plain text; braces here need quotes");
  if (frames_.size() >= kDeepest) source_.fail(offset, concat("nested deeper than ", kDeepest, " levels"));
  Frame frame;
  frame.value = std::move(empty);
  frame.value.mark = source_.mark_at(offset);
  frame.anchor = anchor;
  frame.offset = offset;
  frames_.push_back(std::move(frame));
}

void TreeBuilder::end() {
  merge(frames_.back());
  Frame frame = std::move(frames_.back());
  frames_.pop_back();
  add(std::move(frame.value), frame.offset, frame.anchor);
}

void TreeBuilder::count(const ConfigValue& value, std::size_t offset) {
  nodes_ += node_count(value);
  if (nodes_ > kMostNodes)
    source_.fail(offset, concat("more than ", with_commas(kMostNodes), " values through aliases"));
}

void TreeBuilder::add(ConfigValue value, std::size_t offset, std::size_t anchor) {
  if (!value.mark.known()) value.mark = source_.mark_at(offset);
  if (anchor != 0) anchors_[anchor] = value;
  if (frames_.empty()) {
    root_ = std::move(value);
    return;
  }
  Frame& frame = frames_.back();
  if (frame.value.is_list()) {
    frame.value.items().push_back(std::move(value));
  } else {
    add_entry(frame, std::move(value), offset);
  }
}

void TreeBuilder::add_entry(Frame& frame, ConfigValue value, std::size_t offset) {
  Key key = *frame.key;
  std::string path = current_path();
  frame.key.reset();
  if (value.is_null()) value.mark = key.mark;  // the parser reports the place of whatever follows
  if (key.plain && key.text == "<<") {
    bool maps = value.is_map();
    if (value.is_list()) {
      maps = true;
      for (const ConfigValue& item : value.items()) maps = maps && item.is_map();
    }
    if (!maps) source_.fail(offset, "'<<' merges a map or a list of maps, found " + value.found());
    frame.merges.push_back(std::move(value));
    return;
  }
  std::vector<std::string> parts = key.plain ? split(key.text, '.') : std::vector<std::string>{key.text};
  for (const std::string& part : parts) {
    if (part.empty() && key.plain) {
      mistakes_.add(key.mark, path,
                    "a dotted key with an empty part; put it in quotes when the dots belong to the name");
      return;
    }
  }
  std::string prefix = path.substr(0, path.size() - key.text.size());
  if (!prefix.empty()) prefix.pop_back();
  insert(frame.value, parts, 0, key.mark, std::move(value), prefix);
}

void TreeBuilder::insert(ConfigValue& map, const std::vector<std::string>& parts, std::size_t i, const Mark& mark,
                         ConfigValue value, const std::string& path) {
  std::string here = child_path(path, parts[i]);
  ConfigValue* old = map.find(parts[i]);
  if (i + 1 == parts.size()) {
    value.key_mark = mark;
    if (old == nullptr) {
      map.entries().emplace_back(parts[i], std::move(value));
    } else if (!old->mark.known() && value.is_map()) {
      old->mark = value.mark;
      old->key_mark = mark;
      for (ConfigValue::Entry& entry : value.entries()) {
        Mark entry_mark = entry.second.key_mark;
        insert(*old, {entry.first}, 0, entry_mark, std::move(entry.second), here);
      }
    } else {
      mistakes_.add(mark, here, concat("given twice; first at line ", old->where().line));
    }
    return;
  }
  if (old == nullptr) {
    ConfigValue made = ConfigValue::map();
    made.key_mark = mark;
    old = &map.entries().emplace_back(parts[i], std::move(made)).second;
  }
  if (!old->is_map()) {
    mistakes_.add(mark, child_path(here, parts[i + 1]),
                  concat("'", parts[i], "' has the value ", old->found(), " already, at line ", old->where().line));
    return;
  }
  Mark next = mark;
  next.column += static_cast<int>(utf8_columns(parts[i])) + 1;
  insert(*old, parts, i + 1, next, std::move(value), here);
}

// Keys of the map itself win over merged ones, earlier merges over later ones.
void TreeBuilder::merge(Frame& frame) {
  for (const ConfigValue& source : frame.merges) {
    std::vector<ConfigValue> maps = source.is_map() ? std::vector<ConfigValue>{source} : source.items();
    for (const ConfigValue& map : maps) {
      for (const ConfigValue::Entry& entry : map.entries()) {
        if (frame.value.find(entry.first) == nullptr) frame.value.entries().push_back(entry);
      }
    }
  }
}

ConfigValue TreeBuilder::take() {
  ConfigValue root = std::move(*root_);
  fill_marks(root);
  root.place("");
  return root;
}

}  // namespace loom
