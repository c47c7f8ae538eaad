#include "core/data/chat_source.h"

#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/data/chat_media.h"
#include "core/data/chat_messages.h"
#include "core/data/source_options.h"
#include "core/data/text_lines.h"

namespace loom {
namespace {

class ChatSource : public Source {
 public:
  ChatSource(const ConfigValue& config, std::string name)
      : name_(std::move(name)),
        path_(config.get_string("path")),
        root_(config.get_string("media_root")),
        options_(read_source_options(config)),
        lines_(path_, said_at(config.at("path"))) {
    const ConfigValue& root = config.at("media_root");
    LOOM_CHECK_USER(root_.empty() || is_folder(root_), said_at(root), root_, ": no such folder", near_path(root_));
    if (root_.empty()) root_ = std::filesystem::path(path_).parent_path().string();
  }

  int64_t size() const override { return options_.limited(lines_.size()); }
  const std::string& name() const override { return name_; }
  double weight() const override { return options_.weight; }

  RawSample read(int64_t index) const override { return read(index, true); }
  RawSample read_without_media(int64_t index) const override { return read(index, false); }

 private:
  RawSample read(int64_t index, bool with_media) const {
    RawSample out;
    out.key = sample_key(index);
    out.name = sample_name(index);
    out.origin = concat(path_, ":", lines_.line(index));
    try {
      out.parts = parse_chat(lines_.read(index));
      if (!with_media)
        std::erase_if(out.parts, [](const SamplePart& part) { return part.kind == SamplePart::Kind::media; });
      for (SamplePart& part : out.parts) {
        if (part.kind != SamplePart::Kind::media) continue;
        part.media = open_media(part.text, root_, options_.modality, options_.pictures);
        part.text.clear();
      }
    } catch (const UserError& problem) {
      throw UserError(concat(out.origin, ": ", problem.what()));
    }
    return out;
  }

  std::string name_, path_, root_;
  SourceOptions options_;
  TextLines lines_;
};

}  // namespace

Schema chat_schema() {
  Schema s;
  s.string("type", "chat", "chat: conversations, captions or texts as JSON lines or one JSON array");
  s.string("path", "", "file of samples: messages, conversations, text, image + caption, or instruction").required();
  s.string("media_root", "", "folder that paths of pictures start from; empty = the folder of the file");
  add_source_fields(s);
  return s;
}

std::unique_ptr<Source> make_chat_source(const ConfigValue& config, std::string name) {
  return std::make_unique<ChatSource>(config, std::move(name));
}

}  // namespace loom
