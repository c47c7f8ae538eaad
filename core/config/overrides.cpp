// A value that does not begin with a bracket or a quote is taken as it is, so that "caption=a photo: {name}" needs no
// second layer of quotes inside the shell's.
#include "core/config/overrides.h"

#include <charconv>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/config/scalar.h"
#include "core/config/yaml_reader.h"

namespace loom {
namespace {

const char* const kPlace = "command line";

struct Override {
  std::string path;
  std::string value;
};

[[noreturn]] void fail(const std::string& what) { throw UserError(concat(kPlace, ": ", what)); }

std::vector<Override> parse_args(const std::vector<std::string>& args) {
  std::vector<Override> result;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string_view arg = args[i];
    if (!valid_utf8(arg)) fail(concat("argument ", i + 1, " is not UTF-8 text"));
    bool dashes = arg.starts_with("--");
    if (dashes) arg.remove_prefix(2);
    std::size_t equals = arg.find('=');
    std::string path(arg.substr(0, equals));
    if (path.empty() || path[0] == '-') fail(concat(quote_text(args[i]), " names no recipe key; expected key=value"));
    if (equals != std::string_view::npos) {
      result.push_back({path, std::string(arg.substr(equals + 1))});
    } else if (!dashes) {
      fail(concat(quote_text(args[i]), " is no override; expected key=value or --key value"));
    } else if (i + 1 == args.size() || args[i + 1].starts_with("--")) {
      fail(concat("--", path, ": no value follows; expected --", path, " VALUE"));
    } else {
      result.push_back({path, args[++i]});
      if (!valid_utf8(args[i])) fail(concat("the value of --", path, " is not UTF-8 text"));
    }
  }
  return result;
}

ConfigValue parse_value(const Override& override) {
  const std::string& text = override.value;
  std::vector<std::string> problems;
  Interpolated inserted = interpolate(text, problems);
  if (!problems.empty()) fail(concat(override.path, ": ", problems[0]));
  if (text.empty()) return ConfigValue::string("");
  if (std::string_view("[{'\"").find(text[0]) == std::string_view::npos) return resolve_scalar(inserted.text);
  try {
    return read_yaml_text(text, "");
  } catch (const UserError& error) {
    std::string what = error.what();
    what = what.substr(0, what.find('\n'));
    std::size_t cut = what.find(": ");  // the position inside the argument tells nobody anything
    fail(concat(override.path, ": ", quote_text(text), ": ", what.starts_with(":") ? what.substr(cut + 2) : what));
  }
}

// The item of a list that a part of a path names.
ConfigValue& list_item(ConfigValue& list, const std::string& part, const std::string& path) {
  std::size_t index = 0;
  std::from_chars_result end = std::from_chars(part.data(), part.data() + part.size(), index);
  std::size_t length = list.items().size();
  if (end.ec == std::errc::invalid_argument || end.ptr != part.data() + part.size()) {
    fail(concat(path, ": expected the number of a list item, found ", quote_text(part), " (the list has ", length,
                length == 1 ? " item)" : " items)"));
  }
  if (end.ec != std::errc() || index >= length) {
    fail(concat(path, ": no item ", part, "; the list has ", length, length == 1 ? " item" : " items",
                length == 0 ? "" : concat(", 0 to ", length - 1)));
  }
  return list.items()[index];
}

// A key of the file may itself hold dots (written in quotes): the longest existing one is taken.
std::size_t longest_key(const ConfigValue& map, const std::vector<std::string>& parts, std::size_t from) {
  for (std::size_t end = parts.size(); end > from + 1; --end) {
    std::vector<std::string> some(parts.begin() + static_cast<std::ptrdiff_t>(from),
                                  parts.begin() + static_cast<std::ptrdiff_t>(end));
    if (map.find(join(some, ".")) != nullptr) return end;
  }
  return from + 1;
}

void apply(ConfigValue& root, const Override& override) {
  std::vector<std::string> parts = split(override.path, '.');
  for (const std::string& part : parts) {
    if (part.empty()) fail(concat(quote_text(override.path), " has an empty part; expected a.b=value"));
  }
  Mark mark{kPlace, 0, 0};
  ConfigValue* at = &root;
  std::string path;
  for (std::size_t i = 0; i < parts.size();) {
    if (at->is_null()) {
      *at = ConfigValue::map();
      at->stamp(mark);
      at->path = path;
    }
    if (at->is_list()) {
      at = &list_item(*at, parts[i], child_path(path, parts[i]));
      path = child_path(path, parts[i++]);
      continue;
    }
    if (!at->is_map()) {
      fail(concat(override.path, ": ", quote_text(path), " is ", at->found(), ", not a map"));
    }
    std::size_t end = longest_key(*at, parts, i);
    std::vector<std::string> some(parts.begin() + static_cast<std::ptrdiff_t>(i),
                                  parts.begin() + static_cast<std::ptrdiff_t>(end));
    std::string key = join(some, ".");
    ConfigValue* next = at->find(key);
    at = next != nullptr ? next : &at->set(key, ConfigValue());
    path = child_path(path, key);
    i = end;
  }
  ConfigValue value = parse_value(override);
  value.stamp(mark);
  value.place(path);
  *at = std::move(value);
}

}  // namespace

void apply_overrides(ConfigValue& root, const std::vector<std::string>& args,
                     const std::function<void(ConfigValue& root)>& after_each) {
  for (const Override& override : parse_args(args)) {
    apply(root, override);
    if (after_each) after_each(root);
  }
}

}  // namespace loom
