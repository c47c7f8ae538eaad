// Every message that a plugin author or a recipe's author can meet while plugins are found, checked, opened and
// registered.
#include "plugins/loader/plugin_loader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "core/base/error.h"
#include "tests/paths.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

class PluginLoaderTest : public testing::Test {
 protected:
  PluginLoaderTest() { unsetenv("OMNILOOM_PLUGIN_PATH"); }

  static std::string folder(const std::string& name) { return std::string(test::kBadPluginDir) + "/" + name; }
  static std::string file(const std::string& name) { return folder(name) + "/lib" + name + ".omniloom.so"; }
  static Mark mark() { return {"recipe.yaml", 14, 3}; }
  static std::string plugin_error(const std::function<void()>& action) {
    try {
      action();
    } catch (const PluginError& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      EXPECT_EQ(e.exit_code(), 3);
      return e.what();
    }
    ADD_FAILURE() << "no PluginError";
    return {};
  }
  const ComponentSpec& encoder(const std::string& name) {
    return loader_.require(ComponentKind::encoder, name, mark(), "encoders.image");
  }

  Registry registry_;
  PluginLoader loader_{registry_};
};

TEST_F(PluginLoaderTest, LoadsWhatARecipeNames) {
  loader_.add_path(folder("good"), mark());
  const ComponentSpec& spec = encoder("probe");
  EXPECT_EQ(spec.name, "probe");
  EXPECT_EQ(registry_.owner(ComponentKind::encoder, "probe"), folder("good") + "/libprobe.omniloom.so");
  EXPECT_EQ(&encoder("probe"), &spec) << "a second request finds the same spec";
}

TEST_F(PluginLoaderTest, FindsThroughTheVariable) {
  setenv("OMNILOOM_PLUGIN_PATH", ("/nowhere:" + folder("good")).c_str(), 1);
  EXPECT_EQ(encoder("probe").name, "probe");
  unsetenv("OMNILOOM_PLUGIN_PATH");
}

TEST_F(PluginLoaderTest, LooksBesideTheCore) {
  EXPECT_EQ(core_plugin_folder(), fs::weakly_canonical(test::kPluginDir).string());
}

TEST_F(PluginLoaderTest, ALinkToALoadedFileIsTheSameFile) {
  const fs::path link = fs::path(testing::TempDir()) / "liblink.omniloom.so";
  fs::remove(link);
  fs::create_symlink(folder("good") + "/libprobe.omniloom.so", link);
  loader_.add_path(folder("good"), mark());
  loader_.add_path(link.string(), mark());
  EXPECT_EQ(encoder("probe").name, "probe");
  fs::remove(link);
}

TEST_F(PluginLoaderTest, NotAPlugin) {
  const std::string path = folder("no_descriptor") + "/libno_descriptor.omniloom.so";
  EXPECT_EQ(plugin_error([&] { loader_.load(path); }),
            path + ": no omniloom plugin descriptor (is this a plugin library?)");
  // A file that the recipe itself names must be a plugin, whichever name is asked for.
  loader_.add_path(path, mark());
  EXPECT_EQ(plugin_error([&] { encoder("probe"); }),
            path + ": no omniloom plugin descriptor (is this a plugin library?)");
}

TEST_F(PluginLoaderTest, OtherLibTorch) {
  const Descriptor& core = core_descriptor();
  EXPECT_EQ(plugin_error([&] { loader_.load(file("other_torch")); }),
            "other_torch 1.2.0 (" + file("other_torch") +
                ") was built with LibTorch 2.4.0 [build a1b2c3d4]; this core has " + core.field("torch") + " [build " +
                core.field("torch_build").substr(0, 8) + "]. Rebuild the plugin.");
}

TEST_F(PluginLoaderTest, OtherCxxAbi) {
  EXPECT_EQ(plugin_error([&] { loader_.load(file("other_abi")); }),
            "other_abi 1.2.0 (" + file("other_abi") +
                ") was built with _GLIBCXX_USE_CXX11_ABI=0; this core uses 1. Rebuild the plugin.");
}

TEST_F(PluginLoaderTest, MissingDependency) {
  EXPECT_EQ(plugin_error([&] { loader_.load(file("missing_dependency")); }),
            file("missing_dependency") + ": cannot load: libgone.so.59 not found (needed by the plugin)");
}

TEST_F(PluginLoaderTest, Duplicate) {
  loader_.add_path(folder("twins"), mark());
  const std::string a = folder("twins") + "/libtwin_a.omniloom.so", b = folder("twins") + "/libtwin_b.omniloom.so";
  EXPECT_EQ(plugin_error([&] { encoder("twin"); }),
            "encoder 'twin' is provided by both " + a + " and " + b + "; keep one or give a path in the recipe");
  // The advice works: a path in the recipe decides.
  loader_.add_path(b, mark());
  encoder("twin");
  EXPECT_EQ(registry_.owner(ComponentKind::encoder, "twin"), b);
  // And the other one is then refused, for it brings the same name.
  EXPECT_EQ(plugin_error([&] { loader_.load(a); }),
            "encoder 'twin' is provided by both " + b + " and " + a + "; keep one or give a path in the recipe");
}

TEST_F(PluginLoaderTest, ACopyOfALoadedPluginIsADuplicate) {
  const fs::path copy = fs::path(testing::TempDir()) / "libcopy.omniloom.so";
  fs::copy_file(folder("good") + "/libprobe.omniloom.so", copy, fs::copy_options::overwrite_existing);
  loader_.load(folder("good") + "/libprobe.omniloom.so");
  EXPECT_NE(plugin_error([&] { loader_.load(copy); }).find("plugin 'probe' is provided by both "), std::string::npos);
  fs::remove(copy);
}

TEST_F(PluginLoaderTest, UnknownType) {
  loader_.add_path(folder("good"), mark());
  Mistakes mistakes;
  EXPECT_EQ(loader_.find(ComponentKind::encoder, "prob", mark(), "encoders.image", mistakes), nullptr);
  ASSERT_EQ(mistakes.lines().size(), 1u);
  const std::string expected =
      "recipe.yaml:14:3: encoders.image: no encoder 'prob'; did you mean 'probe'? searched: " + folder("good") +
      ", OMNILOOM_PLUGIN_PATH (empty), " + core_plugin_folder();
  EXPECT_EQ(mistakes.lines().front(), expected);
  try {
    encoder("prob");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.what(), expected);
    EXPECT_EQ(e.exit_code(), 2);
  }
  // Nothing near: no suggestion, and still one line.
  Mistakes far;
  loader_.find(ComponentKind::backbone, "something_else", mark(), "backbone", far);
  EXPECT_EQ(far.lines().front().find("recipe.yaml:14:3: backbone: no backbone 'something_else'; searched: "), 0u)
      << far.lines().front();
  EXPECT_NE(far.lines().front().find("'; searched: "), std::string::npos);
}

TEST_F(PluginLoaderTest, ThrowsWhileRegistering) {
  EXPECT_EQ(plugin_error([&] { loader_.load(file("throws")); }),
            "plugin 'throws' failed to register: the licence server does not answer");
  EXPECT_EQ(registry_.find(ComponentKind::encoder, "throws"), nullptr) << "half a registration must not stay";
}

TEST_F(PluginLoaderTest, BreaksItsPromise) {
  EXPECT_EQ(plugin_error([&] { loader_.load(file("breaks_promise")); }),
            "plugin 'breaks_promise' failed to register: the descriptor promises encoder 'promised', which was not "
            "registered");
}

TEST_F(PluginLoaderTest, NoEntry) {
  EXPECT_EQ(plugin_error([&] { loader_.load(file("no_entry")); }),
            file("no_entry") +
                ": the descriptor names plugin 'no_entry', but the library has no omniloom_plugin_no_entry; " +
                "build it with omniloom_add_plugin");
}

TEST_F(PluginLoaderTest, WhatIsLinkedInWins) {
  EXPECT_EQ(registry_.owner(ComponentKind::encoder, "linked_in"), "this program");
  loader_.add_path(folder("linked_in"), mark());
  EXPECT_EQ(encoder("linked_in").name, "linked_in");
  EXPECT_EQ(registry_.owner(ComponentKind::encoder, "linked_in"), "this program");
  EXPECT_EQ(plugin_error([&] { loader_.load(file("linked_in")); }),
            "plugin 'linked_in' is linked into this program; " + file("linked_in") + " is not loaded beside it");
}

TEST_F(PluginLoaderTest, PathThatDoesNotExist) {
  try {
    loader_.add_path("not/here.omniloom.so", mark());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "recipe.yaml:14:3: plugins: no such file or folder 'not/here.omniloom.so'");
  }
}

TEST_F(PluginLoaderTest, PathsBesideTheRecipeAreFound) {
  loader_.add_path("libprobe.omniloom.so", {folder("good") + "/recipe.yaml", 1, 1});
  EXPECT_EQ(encoder("probe").name, "probe");
}

TEST_F(PluginLoaderTest, ListShowsEverythingAndOpensNothing) {
  for (const char* name : {"good", "other_abi", "no_descriptor", "linked_in"}) loader_.add_path(folder(name), mark());
  std::map<std::string, PluginStatus> by_path;
  for (const PluginStatus& status : loader_.list()) by_path[status.path] = status;
  EXPECT_EQ(by_path[""].status, "linked in");
  EXPECT_EQ(by_path[folder("good") + "/libprobe.omniloom.so"].status, "fits");
  EXPECT_EQ(by_path[file("other_abi")].status, "refused");
  EXPECT_NE(by_path[file("other_abi")].reason.find("_GLIBCXX_USE_CXX11_ABI"), std::string::npos);
  EXPECT_EQ(by_path[folder("no_descriptor") + "/libno_descriptor.omniloom.so"].status, "refused");
  EXPECT_EQ(by_path[file("linked_in")].status, "refused");
  EXPECT_EQ(registry_.find(ComponentKind::encoder, "probe"), nullptr);
}

}  // namespace
}  // namespace loom
