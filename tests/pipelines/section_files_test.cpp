// Sections of a recipe that are files of their own: where paths start, what messages say, what may follow on the
// command line.
#include "pipelines/section_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/config/overrides.h"
#include "core/config/yaml_reader.h"
#include "tests/core/base/temp_folder.h"

namespace loom::test {
namespace {

Schema schema() {
  Schema parallel, s;
  parallel.integer("sp", 1, {1, 8}, "");
  parallel.integer("shard", 0, {0, 8}, "");
  s.string("name", "", "");
  s.section("parallel", parallel, "");
  return s;
}

class SectionFiles : public testing::Test {
 protected:
  SectionFiles() {
    make_dirs(folder_ / "recipes");
    make_dirs(folder_ / "layouts");
    write_file_atomic(folder_ / "layouts/two.yaml", "# a layout\nsp: 2\nshard: 4\n");
  }

  // The recipe after overrides; mistakes are kept.
  ConfigValue read(const std::string& recipe, const std::vector<std::string>& overrides = {}) {
    mistakes_ = Mistakes();
    const std::string path = folder_ / "recipes/r.yaml";
    write_file_atomic(path, recipe);
    ConfigValue raw = read_yaml_file(path, &mistakes_);
    const auto insert = [&](ConfigValue& tree) { whole_ = insert_section_files(tree, schema(), mistakes_) && whole_; };
    whole_ = true;
    insert(raw);
    apply_overrides(raw, overrides, insert);
    return validate(raw, schema(), mistakes_);
  }
  std::string mistake() const { return mistakes_.lines().size() == 1 ? mistakes_.lines()[0] : "not one mistake"; }

  TempFolder folder_;
  Mistakes mistakes_;
  bool whole_ = true;
};

TEST_F(SectionFiles, PathsStartAtTheFolderOfTheRecipe) {
  const ConfigValue parallel = read("name: a\nparallel: ../layouts/two.yaml\n").at("parallel");
  EXPECT_TRUE(mistakes_.empty());
  EXPECT_EQ(parallel.get_int("sp"), 2);
  EXPECT_EQ(parallel.get_int("shard"), 4);
  EXPECT_EQ(parallel.at("sp").mark.str(), (folder_ / "layouts/two.yaml") + ":2:5");
  EXPECT_EQ(parallel.at("sp").path, "parallel.sp");
  EXPECT_EQ(read("name: parallel\nparallel: {sp: 3}\n").at("parallel").get_int("sp"), 3);
  EXPECT_EQ(read("name: b.yaml\n").get_string("name"), "b.yaml") << "a text that is no section stays one";
}

TEST_F(SectionFiles, OverridesStartAtTheWorkingFolderAndMayFollow) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_ / "layouts");
  EXPECT_EQ(read("name: a\n", {"parallel=two.yaml"}).at("parallel").get_int("sp"), 2);
  const ConfigValue parallel = read("name: a\n", {"parallel=two.yaml", "parallel.sp=7"}).at("parallel");
  std::filesystem::current_path(before);
  EXPECT_TRUE(mistakes_.empty());
  EXPECT_EQ(parallel.get_int("sp"), 7);
  EXPECT_EQ(parallel.get_int("shard"), 4);
  EXPECT_EQ(read("parallel: ../layouts/two.yaml\n", {"parallel.shard=1"}).at("parallel").get_int("shard"), 1);
}

TEST_F(SectionFiles, MistakesNameTheFileTheyStandIn) {
  read("name: a\nparallel: ../layouts/tow.yaml\n");
  EXPECT_FALSE(whole_);
  EXPECT_EQ(mistake(), concat(folder_ / "recipes/r.yaml", ":2:11: parallel: ", folder_ / "layouts/tow.yaml",
                              ": no such file; expected a map ('key: value' lines), or the path of a YAML file that "
                              "holds one; did you mean '",
                              folder_ / "layouts/two.yaml", "'?"));
  write_file_atomic(folder_ / "layouts/bad.yaml", "sp: 9\n");
  read("parallel: ../layouts/bad.yaml\n");
  EXPECT_TRUE(whole_);
  EXPECT_EQ(mistake(),
            (folder_ / "layouts/bad.yaml") + ":1:5: parallel.sp: expected an integer from 1 to 8, found '9'");
  write_file_atomic(folder_ / "layouts/bad.yaml", "sp: 1\nsh: 2\n");
  read("parallel: ../layouts/bad.yaml\n");
  EXPECT_NE(mistake().find("bad.yaml:2:1: parallel.sh: unknown key"), std::string::npos) << mistake();
  // A text in it is no path again.
  write_file_atomic(folder_ / "layouts/bad.yaml", "two.yaml\n");
  read("parallel: ../layouts/bad.yaml\n");
  EXPECT_FALSE(whole_);
  EXPECT_NE(mistake().find("bad.yaml:1:1: "), std::string::npos) << mistake();
  read("parallel: ../layouts\n");
  EXPECT_NE(mistake().find(": is a folder; expected a map"), std::string::npos) << mistake();
}

}  // namespace
}  // namespace loom::test
