// A folder of pictures: captions beside the files or made from names, the order, and every way to get it wrong.
#include "core/data/folder_source.h"

#include <gtest/gtest.h>

#include <filesystem>

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

class FolderSourceTest : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    write_bytes(folder_ / name, bytes);
  }
  std::unique_ptr<Source> make(const std::string& more = "") const {
    return source_from("path: \"" + (folder_ / "pics") + "\"" + more);
  }
  static std::string all(const Source& source) {
    std::string out;
    for (int64_t i = 0; i < source.size(); ++i) out += shown(source.read(i).parts) + "|";
    return out;
  }

  TempFolder folder_;
};

TEST_F(FolderSourceTest, CaptionsBesideTheFiles) {
  add("pics/dog.png", grey_png(2, 3, 0));
  add("pics/dog.txt", "\xef\xbb\xbf a dog\r\nin the sun \r\n");
  add("pics/b/cat.PNG", grey_png(4, 5, 0));
  add("pics/b/cat.txt", "a cat");
  add("pics/a/owl.png", grey_png(6, 7, 0));
  add("pics/a/owl.txt", "an owl");
  add("pics/.hidden/x.png", "");
  add("pics/.x.png", "");
  add("pics/notes.md", "");
  std::filesystem::create_directory_symlink("..", folder_ / "pics/a/up");  // must not go round for ever
  const std::unique_ptr<Source> source = make();
  EXPECT_EQ(all(*source), "<6x7>*an owl|<4x5>*a cat|<2x3>*a dog\nin the sun|");
  EXPECT_EQ(source->name(), "train.0");
  EXPECT_EQ(source->modalities(), std::vector<std::string>{"image"});
  EXPECT_EQ(source->read(1).origin, folder_ / "pics/b/cat.PNG");
  EXPECT_EQ(source->read(1).name, "train.0#1");
  EXPECT_EQ(make(", limit: 2, weight: 4")->size(), 2);
  EXPECT_EQ(make(", limit: 2, weight: 4")->weight(), 4);
  EXPECT_EQ(make(", prompt: \"What is it?\"")->size(), 3);
  EXPECT_EQ(shown(make(", prompt: \"What is it?\"")->read(0).parts),
            "[user]<6x7>What is it?[/user][assistant]*an owl[/assistant]*");
}

TEST_F(FolderSourceTest, CaptionsFromNames) {
  add("pics/t-shirt/1.png", grey_png(1, 1, 0));
  add("pics/bag/{text}.png", grey_png(1, 1, 0));
  add("pics/0.png", grey_png(1, 1, 0));
  EXPECT_EQ(all(*make(", caption: \"a photo of a {folder} ({stem})\"")),
            "<1x1>*a photo of a pics (0)|<1x1>*a photo of a bag ({text})|<1x1>*a photo of a t-shirt (1)|");
  EXPECT_EQ(all(*make(", caption: same")), "<1x1>*same|<1x1>*same|<1x1>*same|");
  add("pics/bag/{text}.txt", "with {stem}");
  const std::unique_ptr<Source> source = make(", caption: \"{folder}: {text}\"");
  EXPECT_EQ(shown(source->read(1).parts), "<1x1>*bag: with {stem}");
  EXPECT_HAS(line_of<UserError>([&] { source->read(0); }), "0.png: no caption; expected ");
}

TEST_F(FolderSourceTest, SamplesThatCannotBeUsedAreNamed) {
  add("pics/a.png", grey_png(8, 8, 0));
  add("pics/a.txt", " \n");
  add("pics/b.png", grey_png(8, 8, 0));
  add("pics/c.png", grey_png(8, 8, 0).substr(0, 40));
  add("pics/c.txt", "cut");
  add("pics/d.png", grey_png(8, 8, 0));
  add("pics/d.txt", "caf\xe9");
  std::filesystem::create_symlink("nowhere.png", folder_ / "pics/e.png");
  add("pics/e.txt", "gone");
  const std::unique_ptr<Source> source = make();
  ASSERT_EQ(source->size(), 5);
  const std::vector<std::string> expected = {"a.png: its caption is empty (", "b.png: no caption; expected ", "c.png",
                                             "d.txt: invalid UTF-8", "e.png: no such file"};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_HAS(line_of<UserError>([&] { source->read(static_cast<int64_t>(i)); }), folder_ / ("pics/" + expected[i]));
  }
}

TEST_F(FolderSourceTest, MistakesOfTheWholeFolderSayTheWaysOut) {
  const std::string at = "recipe.yaml:3:14: data.train.0.path: " + (folder_ / "pics") + ": ";
  std::filesystem::create_directory(folder_ / "pics");
  EXPECT_HAS(line_of<UserError>([&] { make(); }), at + "no pictures here (");
  add("pics/a.png", grey_png(1, 1, 0));
  add("pics/b.png", grey_png(1, 1, 0));
  add("pics/c.txt", "of nothing");
  EXPECT_EQ(line_of<UserError>([&] { make(); }),
            at + "2 pictures, but no caption: put a text beside each (a.png and a.txt), or set caption, as in caption: "
                 "\"a photo of a {folder}\"");
  EXPECT_HAS(line_of<UserError>([&] { make(", caption: \"{stm}\""); }),
             "data.train.0.caption: no placeholder '{stm}'; did you mean 'stem'? (there is: {folder}, {stem}, {text})");
  EXPECT_HAS(line_of<UserError>([&] { make(", caption: \"{stem\""); }), "'{' without '}'");
  EXPECT_HAS(line_of<UserError>([&] { source_from("type: folder, path: \"" + (folder_ / "pisc") + "\""); }),
             "pisc: no such folder; did you mean '" + (folder_ / "pics") + "'?");
  EXPECT_HAS(line_of<UserError>([&] { source_from("type: folder, path: \"" + (folder_ / "pics/a.png") + "\""); }),
             "a.png: is no folder");
}

}  // namespace
}  // namespace loom
