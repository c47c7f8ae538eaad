// Reading and comparing descriptors. The file is mapped and searched for the magic: this needs no knowledge of ELF and
// works on stripped files. Fields are validated, since other files (this program among them) may hold the magic too.
#include "plugins/loader/descriptor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "plugins/sdk/plugin.h"

namespace loom {
namespace {

constexpr size_t kLongest = sizeof(sdk::DescriptorText::text);
constexpr std::string_view kMagic = "\x02omniloom-plugin\x03";

// The descriptor that starts right behind the magic.
std::optional<Descriptor> parse(std::string_view text) {
  const size_t end = text.find(";end=1;");
  if (end == std::string_view::npos) return std::nullopt;
  text = text.substr(0, end);
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; })) return std::nullopt;
  Descriptor out;
  bool first = true;
  for (const std::string& part : split(text, ';')) {
    if (first) {
      if (part.empty() || part.size() > 6 || part.find_first_not_of("0123456789") != std::string::npos)
        return std::nullopt;
      out.format = std::stoi(part);
      first = false;
      continue;
    }
    const size_t equal = part.find('=');
    if (equal == std::string::npos) return std::nullopt;
    out.fields[part.substr(0, equal)] = part.substr(equal + 1);
  }
  out.name = out.field("name");
  out.version = out.field("version");
  if (out.name.empty()) return std::nullopt;
  for (const std::string& item : split(out.field("provides"), ',')) {
    if (!item.empty()) out.provides.push_back(item);
  }
  return out;
}

struct Rule {
  const char* key;
  const char* what;  // "built with <what><theirs>; this core uses <what><ours>"
};

}  // namespace

std::string Descriptor::field(std::string_view key) const {
  const auto found = fields.find(key);
  return found == fields.end() ? std::string() : found->second;
}

bool Descriptor::offers(std::string_view kind_and_name) const {
  return std::find(provides.begin(), provides.end(), kind_and_name) != provides.end();
}

std::optional<Descriptor> find_descriptor(std::string_view bytes) {
  for (size_t at = bytes.find(kMagic); at != std::string_view::npos; at = bytes.find(kMagic, at + 1)) {
    std::optional<Descriptor> found = parse(bytes.substr(at + kMagic.size(), kLongest));
    if (found && !found->provides.empty()) return found;  // the program's own text provides nothing
  }
  return std::nullopt;
}

std::optional<Descriptor> read_descriptor(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw UserError(concat(path, ": cannot read: ", errno_text(errno)));
  struct stat info {};
  const bool regular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  const size_t size = regular ? static_cast<size_t>(info.st_size) : 0;
  void* bytes = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  const int error = errno;
  ::close(file);
  if (!regular) throw UserError(concat(path, ": cannot read: not a file"));
  if (size == 0) return std::nullopt;
  if (bytes == MAP_FAILED) throw UserError(concat(path, ": cannot read: ", errno_text(error)));
  std::optional<Descriptor> found = find_descriptor({static_cast<const char*>(bytes), size});
  ::munmap(bytes, size);
  return found;
}

const Descriptor& core_descriptor() {
  static const sdk::DescriptorText text = sdk::describe("omniloom", "core", "");
  static const Descriptor core = *parse(std::string_view(text.text, text.length).substr(kMagic.size()));
  return core;
}

std::optional<std::string> explain_mismatch(const Descriptor& plugin, const std::string& file, const Descriptor& core) {
  const std::string head = concat(plugin.label(), " (", file, ") was built ");
  const std::string tail = ". Rebuild the plugin.";
  if (plugin.format != core.format) {
    return concat(head, "with plugin format ", plugin.format, "; this core reads format ", core.format, tail);
  }
  const auto differs = [&](const char* key) { return plugin.field(key) != core.field(key); };
  if (differs("sdk")) {
    return concat(head, "for omniloom ", plugin.field("sdk"), "; this core is omniloom ", core.field("sdk"), tail);
  }
  if (differs("torch") || differs("torch_build")) {
    const auto build = [](const Descriptor& d) {
      return d.field("torch") + " [build " + d.field("torch_build").substr(0, 8) + "]";
    };
    return concat(head, "with LibTorch ", build(plugin), "; this core has ", build(core), tail);
  }
  constexpr Rule kRules[] = {{"cxx11_abi", "_GLIBCXX_USE_CXX11_ABI="},
                             {"stdlib", "standard library "},
                             {"stdlib_debug", "_GLIBCXX_DEBUG="},
                             {"gxx_abi", "__GXX_ABI_VERSION="},
                             {"cplusplus", "__cplusplus="},
                             {"cuda", "CUDA "},
                             {"sanitizer", "sanitizer "}};
  for (const Rule& rule : kRules) {
    if (!differs(rule.key)) continue;
    return concat(head, "with ", rule.what, plugin.field(rule.key), "; this core uses ", core.field(rule.key), tail);
  }
  if (differs("headers")) {
    return concat(head, "with other headers of omniloom ", core.field("sdk"), " [", plugin.field("headers"),
                  "]; this core has [", core.field("headers"), "]", tail);
  }
  if (differs("sizes")) {
    return concat(head, "with other sizes of shared types [", plugin.field("sizes"), "]; this core has [",
                  core.field("sizes"), "]", tail);
  }
  return std::nullopt;
}

}  // namespace loom
