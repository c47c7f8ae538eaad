// The words of a sample without its pictures: the same text, whether or not the picture can be read.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/data/held_out.h"
#include "core/data/source.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

std::unique_ptr<Source> source_of(ConfigValue entry) {
  entry.set("type", source_type(entry));
  Mistakes mistakes;
  const ConfigValue config = validate(entry, source_schema(entry.at("type")), mistakes);
  mistakes.throw_if_any("test");
  return make_source(config, 0);
}

std::vector<std::string> texts_of(const RawSample& sample) {
  std::vector<std::string> out;
  for (const SamplePart& part : sample.parts) {
    EXPECT_NE(part.kind, SamplePart::Kind::media);
    out.push_back(part.text);
  }
  return out;
}

TEST(ReadWithoutMedia, FoldersAndChatsOfPicturesThatAreNone) {
  const test::TempFolder folder;
  folder.write("a.png", "no picture");
  folder.write("a.txt", "a red door");
  const auto pictures = source_of(ConfigValue::map({{"path", ConfigValue::string(folder.path())}}));
  EXPECT_THROW(pictures->read(0), UserError);
  EXPECT_EQ(texts_of(pictures->read_without_media(0)), (std::vector<std::string>{"a red door"}));
  EXPECT_EQ(pictures->read_without_media(0).key, pictures->sample_key(0));

  const std::string chat = folder.write("chat.jsonl",
                                        "{\"image\": \"a.png\", \"caption\": \"one\"}\n"
                                        "{\"image\": \"absent.png\", \"caption\": \"two\"}\n");
  const std::shared_ptr<Source> lines = source_of(ConfigValue::map({{"path", ConfigValue::string(chat)}}));
  EXPECT_THROW(lines->read(1), UserError);
  EXPECT_EQ(texts_of(lines->read_without_media(1)), (std::vector<std::string>{"two"}));

  const DividedSource parts = hold_out(lines, 0.5);
  ASSERT_EQ(parts.kept->size() + parts.held->size(), 2);
  EXPECT_NE(texts_of(parts.kept->read_without_media(0)), texts_of(parts.held->read_without_media(0)));
}

class PictureAndText : public Source {
 public:
  int64_t size() const override { return 1; }
  const std::string& name() const override { return name_; }
  RawSample read(int64_t) const override {
    RawSample out;
    out.parts.push_back(SamplePart::make_media({}));
    out.parts.push_back(SamplePart::make_text("words", true));
    return out;
  }

 private:
  std::string name_ = "one";
};

TEST(ReadWithoutMedia, ByDefaultASampleIsReadAndItsMediaDropped) {
  EXPECT_EQ(texts_of(PictureAndText().read_without_media(0)), (std::vector<std::string>{"words"}));
}

}  // namespace
}  // namespace loom
