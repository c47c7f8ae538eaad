// Known keys are checked one by one and unknown ones refused, so that a setting of a later version of the format is not
// passed over in silence. Nothing is allocated by a number in the file.
#include "core/data/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/bpe_tokenizer.h"
#include "core/data/strict_json.h"

namespace loom {
namespace {

using Json = nlohmann::json;

// Reads the parts of one file; `name` begins every message.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  BpeModel read(const Json& root) {
    known_keys(root, "",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    if (const Json* version = find(root, "version")) {
      if (*version != "1.0") fail("version", "\"1.0\"", version);
    }
    must_be_null(root, "", "truncation");
    must_be_null(root, "", "padding");
    check_normalizer(root);
    check_byte_level(root, "pre_tokenizer", "pretokenizers");
    if (const Json* post = find(root, "post_processor"); post != nullptr && !post->is_null())
      check_byte_level(root, "post_processor", "processors");
    check_byte_level(root, "decoder", "decoders");
    const Json& model = need(root, "", "model");
    check_model(model);
    read_ids(need(model, "model.", "vocab"), find(root, "added_tokens"));
    read_merges(need(model, "model.", "merges"));
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw UserError(concat(name_, ": ", key, ": ", what));
  }
  [[noreturn]] void fail(const std::string& key, const std::string& expected, const Json* found) const {
    refuse(key, concat("expected ", expected, ", found ", found == nullptr ? "nothing" : shown_json(*found)));
  }

  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }

  const Json& need(const Json& object, const std::string& path, const char* key) const {
    const Json* found = find(object, key);
    if (found == nullptr) refuse(path + key, "is missing");
    return *found;
  }

  // The value is an object with no other keys.
  void known_keys(const Json& object, const std::string& path, const std::vector<std::string>& keys) const {
    if (!object.is_object()) fail(path.empty() ? "the file" : path, "an object", &object);
    for (const auto& [key, value] : object.items()) {
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      const std::string shown = quote_text(key);
      refuse(path.empty() ? shown.substr(1, shown.size() - 2) : path,
             path.empty() ? concat("unknown key", did_you_mean(key, keys))
                          : concat("unknown key ", shown, did_you_mean(key, keys)));
    }
  }

  static bool is_empty_text(const Json& value) {
    return value.is_string() && value.get_ref<const std::string&>().empty();
  }

  void must_be_null(const Json& object, const std::string& path, const char* key) const {
    const Json* value = find(object, key);
    if (value != nullptr && !value->is_null()) fail(path + key, "null", value);
  }

  void check_normalizer(const Json& root) const {
    const Json* value = find(root, "normalizer");
    if (value == nullptr || value->is_null()) return;
    const bool nothing = value->is_object() && value->value("type", Json()) == "Sequence" &&
                         value->value("normalizers", Json()) == Json::array();
    if (!nothing) fail("normalizer", "null", &summary(*value));
  }

  // What a message shows of a value: its type when it has one.
  static const Json& summary(const Json& value) {
    const Json* type = value.is_object() ? find(value, "type") : nullptr;
    return type == nullptr ? value : *type;
  }

  // ByteLevel, alone or as the only one of a Sequence.
  void check_byte_level(const Json& root, const char* key, const char* list) const {
    const Json* value = find(root, key);
    std::string path = key;
    if (value != nullptr && value->is_object() && value->value("type", Json()) == "Sequence") {
      const Json& items = need(*value, path + ".", list);
      if (!items.is_array() || items.size() != 1) fail(path + "." + list, "a list of one", &items);
      path += concat(".", list, "[0]");
      value = &items[0];
    }
    if (value == nullptr || !value->is_object()) fail(path, "ByteLevel", value);
    if (value->value("type", Json()) != "ByteLevel") fail(path + ".type", "\"ByteLevel\"", find(*value, "type"));
    known_keys(*value, path, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    for (const auto& [name, option] : value->items()) {
      if (name != "type" && !option.is_boolean()) fail(path + "." + name, "true or false", &option);
    }
    if (std::string_view(key) != "pre_tokenizer") return;  // the options mean something only there
    const Json* space = find(*value, "add_prefix_space");
    if (space == nullptr || *space != false) fail(path + ".add_prefix_space", "false", space);
    if (const Json* regex = find(*value, "use_regex"); regex != nullptr && *regex != true)
      fail(path + ".use_regex", "true", regex);
  }

  void check_model(const Json& model) const {
    known_keys(model, "model",
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    const Json& type = need(model, "model.", "type");
    if (type != "BPE") fail("model.type", "\"BPE\"", &type);
    if (const Json* dropout = find(model, "dropout"); dropout != nullptr && *dropout != 0.0)
      must_be_null(model, "model.", "dropout");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json* value = find(model, key);
      if (value != nullptr && !is_empty_text(*value)) must_be_null(model, "model.", key);
    }
    for (const char* key : {"byte_fallback", "ignore_merges"}) {
      const Json* value = find(model, key);
      if (value != nullptr && *value != false) fail(concat("model.", key), "false", value);
    }
    // Without a meaning here, since no byte is unknown: unk_token, fuse_unk.
    const Json* unknown = find(model, "unk_token");
    if (unknown != nullptr && !unknown->is_null() && !unknown->is_string())
      fail("model.unk_token", "null or a text", unknown);
    const Json* fuse = find(model, "fuse_unk");
    if (fuse != nullptr && !fuse->is_boolean()) fail("model.fuse_unk", "true or false", fuse);
  }

  int32_t id_of(const std::string& key, const Json& value) const {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX) fail(key, "an id from 0", &value);
    return value.get<int32_t>();
  }

  // Fills tokens and specials. A special token may also stand in the vocabulary, under the same id.
  void read_ids(const Json& vocab, const Json* added) {
    if (!vocab.is_object()) fail("model.vocab", "an object", &vocab);
    std::unordered_map<std::string, int32_t> specials;
    if (added != nullptr && !added->is_null()) read_added(*added, specials);
    std::vector<std::pair<int32_t, const std::string*>> rows;  // ids and how the file spells them
    for (const auto& [spelling, id] : specials) rows.emplace_back(id, &spelling);
    for (auto entry = vocab.begin(); entry != vocab.end(); ++entry) {
      const int32_t id = id_of("model.vocab: " + quote_text(entry.key()), entry.value());
      const auto special = specials.find(entry.key());
      if (special == specials.end()) {
        rows.emplace_back(id, &entry.key());
      } else if (special->second != id) {
        refuse("model.vocab", concat(quote_text(entry.key()), " has id ", id, ", in added_tokens ", special->second));
      }
    }
    std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : *a.second < *b.second;
    });
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& [id, spelling] = rows[i];
      if (i > 0 && id == rows[i - 1].first)
        refuse("model.vocab",
               concat(quote_text(*rows[i - 1].second), " and ", quote_text(*spelling), " both have id ", id));
      if (static_cast<size_t>(id) != i)
        refuse("model.vocab", concat("no token has id ", i, ", but ids go to ", rows.back().first));
      std::string bytes;
      if (specials.count(*spelling) != 0) {
        out_.specials.push_back(id);
        bytes = *spelling;
      } else {
        if (spelling->empty() || !bytes_of_visible(*spelling, bytes))
          refuse("model.vocab", concat(quote_text(*spelling), " is not spelled in the characters of ByteLevel"));
        ids_.emplace(*spelling, id);
      }
      out_.tokens.push_back(std::move(bytes));
    }
    for (int byte = 0; byte < 256; ++byte) {
      const std::string spelling = visible_bytes(std::string(1, static_cast<char>(byte)));
      if (ids_.count(spelling) == 0)
        refuse("model.vocab", concat("byte ", byte, " is missing (", quote_text(spelling), ")"));
    }
  }

  void read_added(const Json& added, std::unordered_map<std::string, int32_t>& out) const {
    if (!added.is_array()) fail("added_tokens", "a list", &added);
    for (size_t i = 0; i < added.size(); ++i) {
      const std::string path = concat("added_tokens[", i, "]");
      known_keys(added[i], path, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      const Json& content = need(added[i], path + ".", "content");
      if (!content.is_string() || is_empty_text(content)) fail(path + ".content", "a text", &content);
      const Json* special = find(added[i], "special");
      if (special == nullptr || *special != true) fail(path + ".special", "true", special);
      const int32_t id = id_of(path + ".id", need(added[i], path + ".", "id"));
      if (!out.emplace(content.get<std::string>(), id).second)
        refuse(path + ".content", concat(shown_json(content), " stands in the list before"));
    }
  }

  void read_merges(const Json& merges) {
    if (!merges.is_array()) fail("model.merges", "a list", &merges);
    std::unordered_map<uint64_t, size_t> seen;
    for (size_t i = 0; i < merges.size(); ++i) {
      const Json& merge = merges[i];
      std::string left, right;
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          fail(concat("model.merges[", i, "]"), "\"a b\"", &merge);
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        fail(concat("model.merges[", i, "]"), "\"a b\" or [\"a\", \"b\"]", &merge);
      }
      BpeMerge row{token(i, left), token(i, right), token(i, left + right)};
      const uint64_t pair = static_cast<uint64_t>(row.left) << 32 | static_cast<uint64_t>(row.right);
      if (const auto [before, fresh] = seen.emplace(pair, i); !fresh)
        refuse(concat("model.merges[", i, "]"), concat("is the same as model.merges[", before->second, "]"));
      out_.merges.push_back(row);
    }
  }

  int32_t token(size_t merge, const std::string& spelling) const {
    const auto found = ids_.find(spelling);
    if (found == ids_.end())
      refuse(concat("model.merges[", merge, "]"), concat(quote_text(spelling), " is no token of model.vocab"));
    return found->second;
  }

  const std::string& name_;
  BpeModel out_;
  std::unordered_map<std::string, int32_t> ids_;  // ordinary tokens by their spelling in the file
};

std::string quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

BpeModel parse_tokenizer_json(std::string_view bytes, const std::string& name) {
  return Reader(name).read(parse_strict_json(bytes, name));
}

// By hand, so that the vocabulary stands in the order of its ids and a person can read the file.
std::string write_tokenizer_json(const BpeModel& model) {
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  for (size_t i = 0; i < model.specials.size(); ++i) {
    out += concat(
        i == 0 ? "" : ",", "\n    {\"id\": ", model.specials[i],
        ", \"content\": ", quoted(model.tokens[static_cast<size_t>(model.specials[i])]),
        ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}");
  }
  const char* level = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true})";
  out += concat(
      "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ", level, ",\n  \"post_processor\": ", level,
      ",\n  \"decoder\": ", level, ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n",
      "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n",
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
  const auto visible = [&](int32_t id) { return quoted(visible_bytes(model.tokens[static_cast<size_t>(id)])); };
  bool first = true;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.is_special(static_cast<int32_t>(id))) continue;
    out += concat(first ? "" : ",", "\n      ", visible(static_cast<int32_t>(id)), ": ", id);
    first = false;
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < model.merges.size(); ++i) {
    out += concat(i == 0 ? "" : ",", "\n      [", visible(model.merges[i].left), ", ", visible(model.merges[i].right),
                  "]");
  }
  return out + "\n    ]\n  }\n}\n";
}

std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const std::string& where) {
  std::string text;
  try {
    text = read_text(path);
  } catch (const UserError& error) {
    throw UserError(where + error.what());
  }
  const std::string name = where + path;
  return std::make_unique<BpeTokenizer>(parse_tokenizer_json(text, name), name);
}

}  // namespace loom
