// Only names are read at the start; the order is that of the names, so it does not depend on the file system.
#include "core/data/folder_source.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/data/source_options.h"

namespace loom {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> kPictures = {".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp",
                                         ".gif", ".tif", ".tiff", ".pnm", ".ppm",  ".pgm",  ".pbm"};
const std::vector<std::string> kPlaceholders = {"folder", "stem", "text"};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Relative paths of pictures, sorted, and of the texts beside them.
struct Listing {
  std::vector<std::string> pictures;
  std::set<std::string> texts;
  std::string mistake;
};

// `above` holds the folders that lead here, so that a link to one of them ends the walk.
void walk(const fs::path& root, const fs::path& inside, std::vector<fs::path>& above, Listing& out) {
  std::error_code error;
  const fs::path here = root / inside, real = fs::canonical(here, error);
  if (std::find(above.begin(), above.end(), real) != above.end()) return;
  fs::directory_iterator entry(here, error), end;
  above.push_back(real);
  for (; !error && entry != end; entry.increment(error)) {
    const fs::path name = entry->path().filename();
    if (name.native()[0] == '.') continue;
    std::error_code unknown;  // a link that leads nowhere is a picture that cannot be read
    if (entry->is_directory(unknown)) {
      walk(root, inside / name, above, out);
      continue;
    }
    const std::string kind = lower(name.extension().string());
    if (kPictures.count(kind) > 0) out.pictures.push_back((inside / name).string());
    if (kind == ".txt") out.texts.insert((inside / name).string());
  }
  above.pop_back();
  if (error && out.mistake.empty()) out.mistake = concat(here.string(), ": cannot be read: ", error.message());
}

std::string caption_file(const std::string& picture) { return fs::path(picture).replace_extension(".txt").string(); }

std::string read_caption(const std::string& path) {
  std::string text = read_text(path);
  LOOM_CHECK_USER(valid_utf8(text), path, ": invalid UTF-8; expected a caption as text");
  if (text.rfind("\xef\xbb\xbf", 0) == 0) text.erase(0, 3);
  text.erase(std::remove(text.begin(), text.end(), '\r'), text.end());
  return std::string(trim(text));
}

// The template cut at its placeholders: text, name, text, name, ..., text.
std::vector<std::string> parse_template(const ConfigValue& value) {
  const std::string& text = value.as_string();
  std::vector<std::string> out;
  size_t at = 0;
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', at)) {
    const size_t close = text.find('}', open);
    LOOM_CHECK_USER(close != std::string::npos, said_at(value), "'{' without '}' in ", quote_text(text));
    const std::string name = text.substr(open + 1, close - open - 1);
    LOOM_CHECK_USER(std::find(kPlaceholders.begin(), kPlaceholders.end(), name) != kPlaceholders.end(), said_at(value),
                    "no placeholder ", quote_text("{" + name + "}"), did_you_mean(name, kPlaceholders),
                    " (there is: {folder}, {stem}, {text})");
    out.push_back(text.substr(at, open - at));
    out.push_back(name);
    at = close + 1;
  }
  out.push_back(text.substr(at));
  return out;
}

class FolderSource : public Source {
 public:
  FolderSource(const ConfigValue& config, std::string name)
      : name_(std::move(name)),
        root_(config.get_string("path")),
        prompt_(config.get_string("prompt")),
        options_(read_source_options(config)) {
    const std::string where = concat(said_at(config.at("path")), root_, ": ");
    std::error_code error;
    LOOM_CHECK_USER(fs::exists(root_, error), where, "no such folder", near_path(root_));
    LOOM_CHECK_USER(is_folder(root_), where, "is no folder; expected a folder of pictures");
    if (!config.get_string("caption").empty()) template_ = parse_template(config.at("caption"));
    needs_text_ = template_.empty();
    for (size_t i = 1; i < template_.size(); i += 2) needs_text_ = needs_text_ || template_[i] == "text";

    Listing found;
    std::vector<fs::path> above;
    walk(root_, "", above, found);
    LOOM_CHECK_USER(found.mistake.empty(), said_at(config.at("path")), found.mistake);
    std::sort(found.pictures.begin(), found.pictures.end());
    pictures_ = std::move(found.pictures);
    LOOM_CHECK_USER(!pictures_.empty(), where, "no pictures here (", join({kPictures.begin(), kPictures.end()}, " "),
                    ")");
    const bool has_caption = std::any_of(pictures_.begin(), pictures_.end(), [&](const std::string& picture) {
      return found.texts.count(caption_file(picture)) > 0;
    });
    LOOM_CHECK_USER(!needs_text_ || has_caption, where, with_commas(static_cast<int64_t>(pictures_.size())),
                    pictures_.size() == 1 ? " picture" : " pictures", ", but no caption: put a text beside each (",
                    pictures_[0], " and ", caption_file(pictures_[0]),
                    "), or set caption, as in caption: \"a photo of a {folder}\"");
  }

  int64_t size() const override { return options_.limited(static_cast<int64_t>(pictures_.size())); }
  const std::string& name() const override { return name_; }
  std::vector<std::string> modalities() const override { return {options_.modality}; }
  double weight() const override { return options_.weight; }
  uint64_t sample_identity(int64_t index) const override {
    return mix_hash(hash_name(name_), hash_name(pictures_[static_cast<size_t>(index)]));
  }

  RawSample read(int64_t index) const override { return read(index, true); }
  RawSample read_without_media(int64_t index) const override { return read(index, false); }

 private:
  RawSample read(int64_t index, bool with_media) const {
    LOOM_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
    const std::string& picture = pictures_[static_cast<size_t>(index)];
    RawSample out;
    out.key = sample_key(index);
    out.name = sample_name(index);
    out.origin = (fs::path(root_) / picture).string();
    const std::string caption = caption_of(picture, out.origin);
    LOOM_CHECK_USER(!trim(caption).empty(), out.origin, ": its caption is empty");
    const auto add_picture = [&] {
      if (!with_media) return;
      out.parts.push_back(SamplePart::make_media(read_picture(out.origin, options_.modality, options_.pictures)));
    };
    if (prompt_.empty()) {
      add_picture();
      out.parts.push_back(SamplePart::make_text(caption, true));
      return out;
    }
    out.parts.push_back(SamplePart::make_turn_begin("user"));
    add_picture();
    out.parts.push_back(SamplePart::make_text(prompt_, false));
    out.parts.push_back(SamplePart::make_turn_end(false));
    out.parts.push_back(SamplePart::make_turn_begin("assistant"));
    out.parts.push_back(SamplePart::make_text(caption, true));
    out.parts.push_back(SamplePart::make_turn_end(true));
    return out;
  }

  std::string caption_of(const std::string& picture, const std::string& path) const {
    std::string text;
    if (needs_text_) {
      const std::string beside = caption_file(path);
      LOOM_CHECK_USER(is_file(beside), path, ": no caption; expected ", beside);
      text = read_caption(beside);
      LOOM_CHECK_USER(!text.empty(), path, ": its caption is empty (", beside, ")");
    }
    if (template_.empty()) return text;
    std::string out = template_[0];
    for (size_t i = 1; i < template_.size(); i += 2) {
      const std::string& placeholder = template_[i];
      if (placeholder == "text") out += text;
      if (placeholder == "stem") out += fs::path(picture).stem().string();
      if (placeholder == "folder") out += folder_of(picture);
      out += template_[i + 1];
    }
    return out;
  }

  // The folder that holds the picture; for those at the top, the source's own.
  std::string folder_of(const std::string& picture) const {
    const std::string inside = fs::path(picture).parent_path().filename().string();
    if (!inside.empty()) return inside;
    std::error_code error;
    const fs::path root = fs::canonical(root_, error);
    return error ? "" : root.filename().string();
  }

  std::string name_, root_, prompt_;
  SourceOptions options_;
  std::vector<std::string> template_;  // empty = the text beside the picture
  bool needs_text_ = true;
  std::vector<std::string> pictures_;
};

}  // namespace

Schema folder_schema() {
  Schema s;
  s.string("type", "folder", "folder: pictures in a folder, with captions");
  s.string("path", "", "folder of pictures; folders in it count, hidden files do not").required();
  s.string("caption", "", "text to learn, with {folder}, {stem} or {text}; empty = the text beside each picture");
  s.string("prompt", "", "makes each sample a conversation in which the user says this");
  add_source_fields(s);
  return s;
}

std::unique_ptr<Source> make_folder_source(const ConfigValue& config, std::string name) {
  return std::make_unique<FolderSource>(config, std::move(name));
}

}  // namespace loom
