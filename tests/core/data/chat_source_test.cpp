// Chat files as sources: their kind and options, pictures wherever they lie, and reasons that begin with file and line.
#include "core/data/chat_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/data/preparer.h"
#include "tests/core/checkpoint/files.h"
#include "tests/core/data/png_bytes.h"
#include "tests/core/data/sources.h"

namespace loom {
namespace {

using test::grey_png;
using test::line_of;
using test::shown;
using test::source_from;
using test::TempFolder;
using test::write_bytes;

class ChatSourceTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  std::unique_ptr<Source> make(const std::string& name, const std::string& more = "") const {
    return source_from("path: \"" + path(name) + "\"" + more);
  }
  static std::string ask(const std::string& picture) {
    return R"({"messages":[{"role":"user","content":"<image>?"},{"role":"assistant","content":"!"}],"images":[")" +
           picture + "\"]}\n";
  }
  std::string reason(const Source& source, int64_t index) const {
    return line_of<UserError>([&] { source.read(index); });
  }

  TempFolder folder_;
};

TEST_F(ChatSourceTest, LinesArraysAndWhatEditorsDoToThem) {
  const std::string a = R"({"text":"a"})", b = R"({"text":"b"})";
  write_bytes(path("lf.jsonl"), a + "\n" + b + "\n");
  write_bytes(path("crlf.jsonl"), "\xef\xbb\xbf" + a + "\r\n\r\n" + b + "\r\n");
  write_bytes(path("array.jsonl"), "[" + a + ",\n " + b + "]\n");
  write_bytes(path("array.json"), "\xef\xbb\xbf[\r\n" + a + ",\r\n" + b + "\r\n]\r\n");
  write_bytes(path("LINES.JSON"), a + "\n" + b);
  for (const char* name : {"lf.jsonl", "crlf.jsonl", "array.jsonl", "array.json", "LINES.JSON"}) {
    const std::unique_ptr<Source> source = make(name);
    ASSERT_EQ(source->size(), 2) << name;
    EXPECT_EQ(source->name(), "train.0");
    EXPECT_EQ(shown(source->read(0).parts), "*a");
    const RawSample second = source->read(1);
    EXPECT_EQ(shown(second.parts), "*b");
    EXPECT_EQ(second.name, "train.0#1");
    EXPECT_EQ(second.key, source->sample_key(1));
  }
  EXPECT_EQ(make("crlf.jsonl")->read(1).origin, path("crlf.jsonl") + ":3");
  EXPECT_EQ(make("array.json")->read(1).origin, path("array.json") + ":3");
  EXPECT_EQ(make("lf.jsonl", ", limit: 1")->size(), 1);
  EXPECT_EQ(make("lf.jsonl", ", weight: 3")->weight(), 3);
  EXPECT_EQ(make("lf.jsonl", ", type: chat")->size(), 2);
}

TEST_F(ChatSourceTest, PicturesBesideTheFileInAnotherFolderOrInTheText) {
  std::filesystem::create_directory(path("img"));
  write_bytes(path("img/a b.png"), grey_png(2, 3, 7));
  write_bytes(path("c.png"), grey_png(4, 5, 9));
  write_bytes(path("x.jsonl"), ask("img/a b.png") + ask("file://" + path("img/a%20b.png")) + ask(path("c.png")));
  const std::unique_ptr<Source> source = make("x.jsonl");
  for (const int64_t i : {0, 1}) {
    const RawSample sample = source->read(i);
    EXPECT_EQ(shown(sample.parts), "[user]<2x3>?[/user][assistant]*![/assistant]*");
    EXPECT_EQ(sample.parts[1].media.info.modality, "image");
    EXPECT_EQ(sample.parts[1].media.data.sum().item<int64_t>(), 6 * 7);
  }
  EXPECT_EQ(shown(source->read(2).parts), "[user]<4x5>?[/user][assistant]*![/assistant]*");
  write_bytes(path("y.jsonl"), ask("a b.png"));
  EXPECT_EQ(shown(make("y.jsonl", ", modality: photo, media_root: \"" + path("img") + "\"")->read(0).parts),
            "[user]<2x3>?[/user][assistant]*![/assistant]*");
  EXPECT_EQ(
      make("y.jsonl", ", modality: photo, media_root: \"" + path("img") + "\"")->read(0).parts[1].media.info.modality,
      "photo");
  EXPECT_HAS(line_of<UserError>([&] { make("y.jsonl", ", media_root: \"" + path("imgs") + "\""); }),
             "data.train.0.media_root: " + path("imgs") + ": no such folder; did you mean '" + path("img") + "'?");
}

TEST_F(ChatSourceTest, ABase64PictureIsDecoded) {
  const std::string bytes = grey_png(2, 3, 7);
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kAlphabet[bits >> (18 - 6 * k) & 63];
  }
  write_bytes(path("x.jsonl"),
              ask("data:image/png;base64," + text) + ask("data:image/png;base64,*") + ask("data:image/png,x"));
  const std::unique_ptr<Source> source = make("x.jsonl");
  EXPECT_EQ(source->read(0).parts[1].media.data.sum().item<int64_t>(), 6 * 7);
  EXPECT_EQ(source->read(0).parts[1].text, "");
  EXPECT_HAS(reason(*source, 1), "x.jsonl:2: data:image/png;base64: not base64: found '*'");
  EXPECT_HAS(reason(*source, 2), "x.jsonl:3: 'data:image/png': expected data:image/png;base64,");
}

TEST_F(ChatSourceTest, ReasonsBeginWithFileAndLine) {
  write_bytes(path("cut.png"), grey_png(40, 40, 3).substr(0, 50));
  write_bytes(path("big.png"), grey_png(40, 40, 3));
  write_bytes(path("x.jsonl"), "{\"text\": \"a\"}\n\n{\"text\": \"caf\xe9\"}\n{\"txt\": 1}\n{\"text\": \n" +
                                   ask("gone.png") + ask("cut.png") + ask("big.png") + ask("http://a.org/x.png"));
  const std::unique_ptr<Source> source = make("x.jsonl", ", max_pixels: 1000");
  ASSERT_EQ(source->size(), 8);
  EXPECT_EQ(reason(*source, 1), path("x.jsonl") + ":3: invalid UTF-8 at byte 14 of the sample");
  EXPECT_HAS(reason(*source, 2), path("x.jsonl") + ":4: no form is recognised");
  EXPECT_HAS(reason(*source, 2), "found txt; did you mean 'text'?");
  EXPECT_HAS(reason(*source, 3), path("x.jsonl") + ":5: invalid JSON");
  EXPECT_HAS(reason(*source, 4), path("x.jsonl") + ":6: " + path("gone.png") + ": no such file");
  EXPECT_HAS(reason(*source, 5), path("x.jsonl") + ":7: " + path("cut.png"));
  EXPECT_HAS(reason(*source, 6), path("x.jsonl") + ":8: " + path("big.png"));
  EXPECT_HAS(reason(*source, 7), path("x.jsonl") + ":9: images.0: 'http://a.org/x.png' is not on this machine");
}

TEST_F(ChatSourceTest, ALineOfTenMegabytesIsASample) {
  write_bytes(path("x.jsonl"), R"({"text":"a"})"
                               "\n"
                               R"({"text":")" +
                                   std::string(10'000'000, 'x') + "\"}\n");
  const std::unique_ptr<Source> source = make("x.jsonl");
  ASSERT_EQ(source->size(), 2);
  EXPECT_EQ(source->read(1).parts[0].text.size(), 10'000'000u);
}

TEST_F(ChatSourceTest, MistakesOfTheRecipeAreOneLine) {
  write_bytes(path("doors.jsonl"), "{\"text\": \"a\"}\n");
  EXPECT_HAS(line_of<UserError>([&] { make("door.jsonl"); }),
             "recipe.yaml:3:14: data.train.0.path: " + path("door.jsonl") + ": no such file; did you mean '" +
                 path("doors.jsonl") + "'?");
  EXPECT_HAS(line_of<UserError>([&] { make("doors"); }),
             "data.train.0.path: " + path("doors") + ": no such file or folder");
  write_bytes(path("doors.csv"), "a,b\n");
  EXPECT_HAS(line_of<UserError>([&] { make("doors.csv"); }),
             "doors.csv: its name does not tell what it holds; set type (there is: chat, folder, idx)");
  EXPECT_HAS(line_of<UserError>([&] { source_from("type: chta, path: x"); }),
             "recipe.yaml:3:14: data.train.0.type: no source type 'chta'; did you mean 'chat'?");
  EXPECT_HAS(
      line_of<UserError>([&] { source_from("pathh: x"); }),
      "data.train.0: expected path (a .jsonl or .json file, or a folder of pictures), or type (chat, folder, idx); "
      "did you mean 'path'?");
  const std::string unknown = test::message_of<UserError>([&] { make("doors.jsonl", ", wieght: 3"); });
  EXPECT_HAS(unknown, "data.train.0.wieght: unknown key; did you mean 'weight'?");
}

}  // namespace
}  // namespace loom
