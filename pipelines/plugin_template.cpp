#include "pipelines/plugin_template.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "plugins/loader/discovery.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

constexpr const char* kTemplateName = "new_plugin";
constexpr const char* kTemplateClass = "NewPlugin";

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// lidar_3d -> Lidar3d
std::string class_name(const std::string& name) {
  std::string out;
  for (const std::string& word : split(name, '_')) {
    if (word.empty()) continue;
    out += static_cast<char>(std::toupper(static_cast<unsigned char>(word.front())));
    out += word.substr(1);
  }
  return out;
}

void check_name(const std::string& name) {
  // The name becomes a namespace and a part of C functions.
  static const std::set<std::string> kTaken = {
      "and",      "asm",       "auto",     "bool",      "break",    "case",     "catch",   "char",     "class",
      "const",    "continue",  "default",  "delete",    "do",       "double",   "else",    "enum",     "export",
      "extern",   "false",     "float",    "for",       "friend",   "goto",     "if",      "inline",   "int",
      "long",     "loom",      "mutable",  "namespace", "new",      "not",      "or",      "operator", "private",
      "public",   "return",    "short",    "signed",    "sizeof",   "static",   "std",     "struct",   "switch",
      "template", "this",      "throw",    "true",      "try",      "typedef",  "union",   "using",    "virtual",
      "void",     "volatile",  "while",    "xor",       "main",     "at",       "c10",     "torch",    "requires",
      "concept",  "protected", "typename", "typeid",    "unsigned", "explicit", "register"};
  bool good = !name.empty() && name.size() <= 64 && name.front() >= 'a' && name.front() <= 'z';
  for (const char c : name) good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
  if (!good)
    throw UserError(
        concat("plugin name ", quote_text(name), ": expected small letters, digits and _, starting with a letter"));
  if (kTaken.count(name) > 0)
    throw UserError(concat("plugin name ", quote_text(name), " means something in C++; choose another"));
}

}  // namespace

std::string template_folder() {
  return (fs::path(core_plugin_folder()).parent_path().parent_path().parent_path() / "share" / "omniloom" / "template")
      .string();
}

std::vector<std::string> write_template(const std::string& templates, const std::string& kind, const std::string& name,
                                        const std::string& folder) {
  const std::vector<std::string> kinds = {"encoder", "backbone", "connector"};
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    throw UserError(concat("no kind of plugin ", quote_text(kind), did_you_mean(kind, kinds),
                           "; expected encoder, backbone or connector"));
  }
  check_name(name);
  std::error_code error;
  if (fs::exists(folder, error) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error))) {
    throw UserError(concat(folder, ": exists and is not an empty folder; choose another"));
  }
  const fs::path source = fs::path(templates) / kind;
  if (!fs::is_directory(source, error))
    throw EnvironmentError(concat("no template at ", source.string(), "; install omniloom again"));

  std::vector<std::string> written;
  make_dirs(folder);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::string text = read_text(file.string());
    replace_all(text, kTemplateName, name);
    replace_all(text, kTemplateClass, class_name(name));
    const fs::path target = fs::path(folder) / file.filename();
    write_file_atomic(target.string(), text);
    written.push_back(target.string());
  }
  return written;
}

}  // namespace loom
