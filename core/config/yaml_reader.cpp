// yaml-cpp's events go to a TreeBuilder; its errors are put into words here. Events rather than its node tree: they
// carry the position of every key, and nothing is lost on the way (the tree hides keys given twice).
#include "core/config/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <sstream>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/config/tree_builder.h"
#include "core/config/yaml_source.h"

namespace loom {
namespace {

using Offset = std::size_t;

class Events : public YAML::EventHandler {
 public:
  Events(const YamlSource& source, TreeBuilder& builder) : source_(source), builder_(builder) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      source_.fail(offset(mark), "a second document begins here; a file holds one (is a line indented too little?)");
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { builder_.null(offset(mark), anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { builder_.alias(offset(mark), anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    bool quoted_text = tag == "!" || tag == "tag:yaml.org,2002:str";
    check_tag(mark, tag);
    if (quoted_text) {
      source_.check_closed(offset(mark));
      last_quoted_ = offset(mark);
    }
    if (!valid_utf8(text)) source_.fail(offset(mark), "an escape in this text is not read right; write it as \\uXXXX");
    after_quoted_ = quoted_text;
    builder_.scalar(offset(mark), anchor, text, !quoted_text);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    after_quoted_ = false;
    source_.check_closed(offset(mark));
    builder_.begin(ConfigValue::list(), offset(mark), anchor);
  }
  void OnSequenceEnd() override { builder_.end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    after_quoted_ = false;
    source_.check_closed(offset(mark));
    builder_.begin(ConfigValue::map(), offset(mark), anchor);
  }
  void OnMapEnd() override { builder_.end(); }

  // Where the quoted text begins that came right before an error; npos when something else did.
  Offset quote_before() const { return after_quoted_ ? last_quoted_ : std::string::npos; }

 private:
  static Offset offset(const YAML::Mark& mark) { return mark.pos < 0 ? 0 : static_cast<Offset>(mark.pos); }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!" || tag.starts_with("tag:yaml.org,2002:")) return;
    source_.fail(offset(mark), concat("tag ", quote_text(tag), " means nothing here; write the plain value"));
  }

  const YamlSource& source_;
  TreeBuilder& builder_;
  int documents_ = 0;
  Offset last_quoted_ = 0;
  bool after_quoted_ = false;
};

// "steps:2" on the line before makes yaml-cpp stumble one line later.
bool lacks_space(std::string_view line, std::size_t& colon) {
  line = line.substr(0, line.find(" #"));
  colon = line.find(':');
  if (colon == std::string_view::npos || colon + 1 >= line.size() || line.find(": ") != std::string_view::npos)
    return false;
  char next = line[colon + 1];
  return next != ' ' && next != '/' && line.find_first_of("'\"[{") > colon && line.back() != ':';
}

std::string plain_words(const std::string& message) {
  static const std::pair<const char*, const char*> words[] = {
      {YAML::ErrorMsg::END_OF_MAP, "expected a new 'key: value' line here; is the indentation right?"},
      {YAML::ErrorMsg::END_OF_SEQ, "expected a new '- item' line here; is the indentation right?"},
      {YAML::ErrorMsg::END_OF_MAP_FLOW, "expected ',' or '}' here; a '{' before is not closed"},
      {YAML::ErrorMsg::END_OF_SEQ_FLOW, "expected ',' or ']' here; a '[' before is not closed"},
      {YAML::ErrorMsg::MAP_VALUE,
       "a ':' does not fit here; is the indentation right? text that contains ': ' needs quotes"},
      {YAML::ErrorMsg::MAP_KEY, "a key does not fit here; is the indentation right?"},
      {YAML::ErrorMsg::BLOCK_ENTRY, "a '- item' does not fit here; begin it on a line of its own"},
      {YAML::ErrorMsg::FLOW_END, "a closing bracket without an opening one"},
      {YAML::ErrorMsg::UNKNOWN_TOKEN, "text may not begin with this character; put it in quotes"},
      {YAML::ErrorMsg::TAB_IN_INDENTATION, "a tab in the indentation; YAML is indented with spaces"},
      {YAML::ErrorMsg::CHAR_IN_SCALAR, "this character does not fit here; put the text in quotes"},
      {YAML::ErrorMsg::EOF_IN_SCALAR, "the file ends inside quotes"},
      {YAML::ErrorMsg::UNKNOWN_ANCHOR, "no anchor of this name before; text that begins with '*' needs quotes"},
  };
  for (const auto& [theirs, ours] : words) {
    if (message == theirs) return ours;
  }
  if (message.starts_with(YAML::ErrorMsg::INVALID_ESCAPE)) {
    return "unknown escape '\\" + message.substr(std::string(YAML::ErrorMsg::INVALID_ESCAPE).size()) +
           "' in double quotes; use single quotes or '\\\\'";
  }
  return "not valid YAML: " + message;
}

[[noreturn]] void explain(const YamlSource& source, const Events& events, const YAML::Exception& error) {
  const std::string& text = source.text();
  Offset at = error.mark.pos < 0 ? 0 : std::min(static_cast<Offset>(error.mark.pos), text.size());
  if (at > 0 && text.compare(at - 1, 2, "${") == 0) {
    source.fail(at - 1, "'${...}' inside braces or brackets needs quotes: \"${VAR,default}\"");
  }
  Offset last = text.find_last_not_of(' ', at == 0 ? 0 : at - 1);
  bool after_quote = last != std::string::npos && last < at && (text[last] == '\'' || text[last] == '"');
  if (events.quote_before() != std::string::npos && after_quote) {
    Mark opened = source.mark_at(events.quote_before());
    source.fail(at, concat("text goes on after a closing quote (opened at ", opened.line, ":", opened.column,
                           "); a quote inside quotes is written twice"));
  }
  int line = source.mark_at(at).line;
  std::size_t colon = 0;
  for (int candidate : {line, line - 1}) {
    if (error.msg != YAML::ErrorMsg::MAP_VALUE || !lacks_space(source.line(candidate), colon)) continue;
    throw UserError(concat(source.name(), ":", candidate, ":", colon + 1, ": a space is missing after ':'"));
  }
  source.fail(at, plain_words(error.msg));
}

}  // namespace

ConfigValue read_yaml_text(const std::string& text, const std::string& name, Mistakes* mistakes) {
  YamlSource source(text, name);
  Mistakes own;
  TreeBuilder builder(source, mistakes != nullptr ? *mistakes : own);
  Events events(source, builder);
  try {
    std::istringstream stream(source.text());
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(events)) {
    }
  } catch (const YAML::Exception& error) {
    explain(source, events, error);
  }
  if (builder.empty()) throw UserError(name + ": the file is empty; a recipe starts with 'name:'");
  ConfigValue root = builder.take();
  own.throw_if_any(name);
  return root;
}

ConfigValue read_yaml_file(const std::string& path, Mistakes* mistakes) {
  return read_yaml_text(read_text(path), path, mistakes);
}

}  // namespace loom
