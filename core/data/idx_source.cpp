// Both files are read whole at the start (47 MB for 60,000 small pictures), so every defect shows before the first
// step.
#include "core/data/idx_source.h"

#include <zlib.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/source_options.h"

namespace loom {
namespace {

constexpr std::string_view kPlaceholder = "{name}";
constexpr uint64_t kLargest = uint64_t{1} << 40;  // bytes; a header that asks for more is damaged

struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

std::string hex(uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

// zlib reads plain files as they are.
class Reader {
 public:
  Reader(std::string where, const std::string& path) : where_(std::move(where)) {
    LOOM_CHECK_USER(!is_folder(path), where_, "is a folder; expected an IDX file");
    errno = 0;
    file_ = ::gzopen(path.c_str(), "rbe");
    if (file_ == nullptr)
      throw UserError(concat(where_, errno == ENOENT ? "no such file" : errno_text(errno == 0 ? ENOMEM : errno)));
    ::gzbuffer(file_, 1 << 18);
  }
  ~Reader() { ::gzclose(file_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Up to `count` bytes; fewer at the end of the file, also when the archive itself ends early.
  std::vector<uint8_t> read(uint64_t count) {
    std::vector<uint8_t> out;
    while (out.size() < count) {  // grows as data comes, so that a wrong header cannot ask for all memory
      const size_t before = out.size(), step = std::clamp<size_t>(before, 1 << 16, 1 << 24),
                   want = static_cast<size_t>(std::min<uint64_t>(count - before, step));
      out.resize(before + want);
      const int got = ::gzread(file_, out.data() + before, static_cast<unsigned>(want));
      int code = Z_OK;
      const char* text = ::gzerror(file_, &code);
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        throw UserError(concat(where_, "damaged gzip file: ", code == Z_ERRNO ? errno_text(errno) : std::string(text)));
      }
      out.resize(before + static_cast<size_t>(std::max(got, 0)));
      if (got < static_cast<int>(want)) break;
    }
    return out;
  }

 private:
  std::string where_;
  gzFile file_ = nullptr;
};

uint32_t big_endian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

// Reads an array of bytes with `dims` dimensions. `what` is "pictures" or "labels".
IdxArray read_idx(const ConfigValue& value, uint32_t dims, const char* what) {
  const std::string& path = value.as_string();
  const std::string where = concat(said_at(value), path, ": ");
  Reader reader(where, path);
  const uint32_t expected_magic = 0x0800u + dims;
  const std::vector<uint8_t> magic = reader.read(4);
  LOOM_CHECK_USER(magic.size() == 4, where, "truncated: ", magic.size(), " bytes, expected an IDX file of ", what);
  LOOM_CHECK_USER(big_endian(magic.data()) == expected_magic, where, "wrong magic number: expected ",
                  hex(expected_magic), " (", what, "), found ", hex(big_endian(magic.data())));
  const std::vector<uint8_t> sizes = reader.read(4 * dims);
  LOOM_CHECK_USER(sizes.size() == 4 * dims, where, "truncated in its header: expected ", 4 + 4 * dims, " bytes, found ",
                  4 + sizes.size());
  IdxArray out;
  uint64_t total = 1;
  for (uint32_t d = 0; d < dims; ++d) {
    const uint64_t extent = big_endian(sizes.data() + 4 * d);
    LOOM_CHECK_USER(extent > 0, where, "dimension ", d, " has size 0; expected at least 1");
    out.shape.push_back(static_cast<int64_t>(extent));
    total = total > kLargest ? total : total * extent;
  }
  LOOM_CHECK_USER(total <= kLargest, where, "its header asks for more than ",
                  human_bytes(static_cast<double>(kLargest)), " of data");
  out.bytes = reader.read(total);
  LOOM_CHECK_USER(out.bytes.size() == total, where, "truncated: expected ", total, " bytes of data for ",
                  with_commas(out.shape[0]), " ", what, ", found ", out.bytes.size());
  LOOM_CHECK_USER(reader.read(1).empty(), where, "longer than its header says: expected ", total,
                  " bytes of data, found more");
  return out;
}

Media picture_of(const IdxArray& images, int64_t index, const std::string& modality) {
  const int64_t height = images.shape[1], width = images.shape[2];
  Media media;
  media.info.modality = modality;
  media.info.height = height;
  media.info.width = width;
  media.info.channels = 1;
  media.data = at::empty({1, height, width, 1}, at::kByte);
  const uint8_t* pixels = images.bytes.data() + index * height * width;
  std::copy(pixels, pixels + height * width, media.data.mutable_data_ptr<uint8_t>());
  return media;
}

class IdxSource : public Source {
 public:
  IdxSource(const ConfigValue& config, std::string name)
      : name_(std::move(name)), modality_(config.get_string("modality")), caption_(config.get_string("caption")) {
    const ConfigValue& names = config.at("names");
    for (const ConfigValue& item : names.items()) {
      LOOM_CHECK_USER(!item.is_map() && !item.is_list() && !item.is_null(), said_at(item), "expected a name, found ",
                      item.found());
      names_.push_back(item.text());
    }
    LOOM_CHECK_USER(!names_.empty(), said_at(names), "expected the names of the labels, found an empty list");
    LOOM_CHECK_USER(caption_.find(kPlaceholder) != std::string::npos, said_at(config.at("caption")),
                    "expected a text with ", kPlaceholder, ", found ", quote_text(caption_));
    if (const ConfigValue* weight = config.find("weight"); weight != nullptr && !weight->is_null())
      weight_ = weight->as_number();

    images_ = read_idx(config.at("images"), 3, "pictures");
    labels_ = read_idx(config.at("labels"), 1, "labels");
    LOOM_CHECK_USER(images_.shape[0] == labels_.shape[0], said_at(config.at("labels")), config.get_string("labels"),
                    ": ", with_commas(labels_.shape[0]), " labels for ", with_commas(images_.shape[0]), " pictures in ",
                    config.get_string("images"));
    for (size_t i = 0; i < labels_.bytes.size(); ++i) {
      LOOM_CHECK_USER(labels_.bytes[i] < names_.size(), said_at(config.at("labels")), config.get_string("labels"),
                      ": label ", i, " is ", static_cast<int>(labels_.bytes[i]), ", but names has only ", names_.size(),
                      " entries");
    }
    const int64_t limit = config.get_int("limit");
    size_ = limit > 0 ? std::min(limit, images_.shape[0]) : images_.shape[0];
  }

  int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  std::vector<std::string> modalities() const override { return {modality_}; }
  double weight() const override { return weight_; }

  RawSample read(int64_t index) const override {
    LOOM_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
    RawSample out;
    out.key = sample_key(index);
    out.name = sample_name(index);
    out.parts.push_back(SamplePart::make_media(picture_of(images_, index, modality_)));
    out.parts.push_back(SamplePart::make_text(caption(names_[labels_.bytes[static_cast<size_t>(index)]]), true));
    return out;
  }

 private:
  // One pass over the template: a name that contains the placeholder is not expanded again.
  std::string caption(const std::string& label) const {
    std::string out;
    size_t at = 0;
    for (size_t hit = caption_.find(kPlaceholder); hit != std::string::npos; hit = caption_.find(kPlaceholder, at)) {
      out.append(caption_, at, hit - at).append(label);
      at = hit + kPlaceholder.size();
    }
    return out.append(caption_, at);
  }

  std::string name_, modality_, caption_;
  std::vector<std::string> names_;
  double weight_ = 0;
  IdxArray images_, labels_;
  int64_t size_ = 0;
};

}  // namespace

Schema idx_schema() {
  Schema s;
  s.string("type", "idx", "idx: pictures and labels in the IDX format");
  s.string("images", "", "IDX file of pictures, plain or gzip").required();
  s.string("labels", "", "IDX file of labels, plain or gzip").required();
  s.list("names", FieldType::any, "what label 0, 1, ... is called").required();
  s.string("caption", "", "text to learn, with {name} for the label's name").required();
  add_name_field(s);
  s.string("modality", "image", "name of the encoder that takes the pictures");
  s.integer("limit", 0, {0, 1e12}, "use only the first so many; 0 = all");
  s.number("weight", 0, {1e-6, 1e6}, "share of samples among sources; absent = by size").optional();
  return s;
}

std::unique_ptr<Source> make_idx_source(const ConfigValue& config, std::string name) {
  return std::make_unique<IdxSource>(config, std::move(name));
}

Media read_idx_picture(const std::string& path, int64_t index, const std::string& modality) {
  const IdxArray images = read_idx(ConfigValue::string(path), 3, "pictures");
  LOOM_CHECK_USER(index < images.shape[0], path, ": no picture ", index, "; it holds ", with_commas(images.shape[0]),
                  ", counted from 0");
  return picture_of(images, index, modality);
}

}  // namespace loom
