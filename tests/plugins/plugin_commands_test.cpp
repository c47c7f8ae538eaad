// What `omniloom plugin` prints and refuses.
#include "pipelines/plugin_commands.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/base/file.h"
#include "pipelines/plugin_template.h"
#include "plugins/loader/plugin_loader.h"
#include "tests/paths.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

class PluginCommandsTest : public testing::Test {
 protected:
  PluginCommandsTest() : folder_(fs::path(testing::TempDir()) / "plugin_commands") { fs::remove_all(folder_); }
  ~PluginCommandsTest() override { fs::remove_all(folder_); }

  static std::string probe() { return concat(test::kBadPluginDir, "/good/libprobe.omniloom.so"); }

  fs::path folder_;
  Registry registry_;
  PluginLoader loader_{registry_};
  std::ostringstream out_;
};

TEST_F(PluginCommandsTest, InfoOfAFile) {
  EXPECT_EQ(show_plugin(loader_, probe(), false, out_), 0);
  const Descriptor& core = core_descriptor();
  const std::string first = concat("probe 1.2.0 · encoder for modality \"image\" · built for omniloom ",
                                   core.field("sdk"), ", LibTorch ", core.field("torch"), " · fits this core\n");
  EXPECT_EQ(out_.str().find(first), 0u) << out_.str();
  EXPECT_NE(out_.str().find("width"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("axes    dp fsdp"), std::string::npos) << out_.str();
}

TEST_F(PluginCommandsTest, InfoByNameAndUnknownName) {
  loader_.add_path(fs::path(probe()).parent_path(), {"command line", 0, 0});
  show_plugin(loader_, "probe", false, out_);
  EXPECT_EQ(out_.str().find("probe 1.2.0 · encoder"), 0u) << out_.str();
  out_.str("");
  show_plugin(loader_, "linked_in", false, out_);
  EXPECT_EQ(out_.str().find("linked_in 1.0 · encoder"), 0u) << out_.str();
  try {
    show_plugin(loader_, "prob", false, out_);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()).find("no plugin 'prob'; did you mean 'probe'? searched: "), 0u) << e.what();
  }
}

TEST_F(PluginCommandsTest, CheckExplains) {
  EXPECT_EQ(check_plugin(loader_, probe(), out_), 0);
  EXPECT_EQ(out_.str(), probe() + ": probe 1.2.0 provides encoder:probe · fits this core\n");
  EXPECT_THROW(check_plugin(loader_, concat(test::kBadPluginDir, "/other_abi/libother_abi.omniloom.so"), out_),
               PluginError);
  EXPECT_THROW(check_plugin(loader_, "not/here.so", out_), UserError);
}

TEST_F(PluginCommandsTest, ListNamesEveryState) {
  loader_.add_path(concat(test::kBadPluginDir, "/other_torch"), {"command line", 0, 0});
  list_plugins(loader_, out_);
  EXPECT_NE(out_.str().find("linked in"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("refused"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("was built with LibTorch 2.4.0"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("searched: "), std::string::npos) << out_.str();
}

TEST_F(PluginCommandsTest, NewWritesAProjectOfThatName) {
  for (const char* kind : {"encoder", "connector", "backbone"}) {
    const std::string project = folder_ / kind;
    EXPECT_EQ(new_plugin(kind, "lidar_3d", project, out_), 0);
    const std::string source = read_text(concat(project, "/plugin.cpp")) + read_text(concat(project, "/", kind, ".h"));
    EXPECT_NE(source.find(concat("OMNILOOM_PLUGIN(lidar_3d, \"0.1.0\", \"", kind, ":lidar_3d\")")), std::string::npos);
    EXPECT_NE(source.find("class Lidar3d"), std::string::npos);
    EXPECT_EQ(source.find("new_plugin"), std::string::npos);
    EXPECT_EQ(source.find("NewPlugin"), std::string::npos);
    EXPECT_NE(read_text(concat(project, "/CMakeLists.txt")).find("project(lidar_3d"), std::string::npos);
    EXPECT_NE(out_.str().find(concat("cmake -S ", project, " -B ", project, "/build")), std::string::npos)
        << out_.str();
  }
}

TEST_F(PluginCommandsTest, NewRefuses) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "mine.txt") << "precious";
  EXPECT_THROW(new_plugin("encoder", "radar", folder_, out_), UserError) << "a folder with something in it";
  EXPECT_EQ(read_text(folder_ / "mine.txt"), "precious");
  EXPECT_THROW(new_plugin("encoder", "radar", folder_ / "mine.txt", out_), UserError) << "a file";
  EXPECT_THROW(new_plugin("enkoder", "radar", folder_ / "a", out_), UserError) << "an unknown kind";
  for (const char* name : {"", "Radar", "3d", "ra-dar", "class", "loom", "a b"}) {
    EXPECT_THROW(new_plugin("encoder", name, folder_ / "a", out_), UserError) << name;
  }
  EXPECT_FALSE(fs::exists(folder_ / "a"));
}

}  // namespace
}  // namespace loom
