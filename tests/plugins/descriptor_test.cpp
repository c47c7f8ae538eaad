// Descriptors: read without loading, found on stripped files, and compared field by field.
#include "plugins/loader/descriptor.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "tests/paths.h"

namespace fs = std::filesystem;

namespace loom {
namespace {

std::string probe() { return concat(test::kBadPluginDir, "/good/libprobe.omniloom.so"); }

TEST(Descriptor, IsReadWithoutOpeningTheLibrary) {
  const std::optional<Descriptor> found = read_descriptor(probe());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->label(), "probe 1.2.0");
  EXPECT_EQ(found->provides, std::vector<std::string>{"encoder:probe"});
  EXPECT_EQ(dlopen(probe().c_str(), RTLD_NOLOAD | RTLD_NOW), nullptr) << "reading must not load";
}

TEST(Descriptor, SurvivesStrip) {
  const fs::path copy = fs::path(testing::TempDir()) / "stripped.omniloom.so";
  fs::copy_file(probe(), copy, fs::copy_options::overwrite_existing);
  ASSERT_EQ(std::system(("strip " + copy.string()).c_str()), 0);
  const std::optional<Descriptor> found = read_descriptor(copy);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->fields, read_descriptor(probe())->fields);
  fs::remove(copy);
}

TEST(Descriptor, ProbeFitsThisCore) {
  EXPECT_EQ(explain_mismatch(*read_descriptor(probe()), "x.so", core_descriptor()), std::nullopt);
}

TEST(Descriptor, ProgramItselfIsNoPlugin) {
  EXPECT_EQ(read_descriptor("/proc/self/exe")->name, "linked_in")
      << "the text of a linked-in plugin, never the core's own";
}

TEST(Descriptor, PassesOverTextThatOnlyLooksLikeOne) {
  const std::string magic = "\x02omniloom-plugin\x03";
  EXPECT_FALSE(find_descriptor(magic + "1;name=x;provides=encoder:x;"));
  EXPECT_FALSE(find_descriptor(magic + "one;name=x;provides=encoder:x;end=1;"));
  EXPECT_FALSE(find_descriptor(magic + "1;name=\x01;provides=encoder:x;end=1;"));
  EXPECT_FALSE(find_descriptor(magic + "1;provides=encoder:x;end=1;"));
  const auto found =
      find_descriptor(magic + "junk" + magic + "1;name=x;version=3;provides=encoder:x,connector:y;end=1;");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->provides, (std::vector<std::string>{"encoder:x", "connector:y"}));
}

TEST(Descriptor, EmptyAndMissingFiles) {
  const fs::path empty = fs::path(testing::TempDir()) / "empty.omniloom.so";
  std::ofstream(empty).close();
  EXPECT_FALSE(read_descriptor(empty));
  fs::remove(empty);
  EXPECT_THROW(read_descriptor(empty), UserError);
  EXPECT_THROW(read_descriptor(testing::TempDir()), UserError);
}

// Every field of the fingerprint forbids loading when it differs, each with its own words.
TEST(Descriptor, EachFieldOfTheFingerprintIsCompared) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"sdk", "for omniloom other"},
                                                                  {"torch", "with LibTorch other [build "},
                                                                  {"torch_build", "[build other]"},
                                                                  {"cxx11_abi", "_GLIBCXX_USE_CXX11_ABI=other"},
                                                                  {"stdlib", "standard library other"},
                                                                  {"stdlib_debug", "_GLIBCXX_DEBUG=other"},
                                                                  {"gxx_abi", "__GXX_ABI_VERSION=other"},
                                                                  {"cplusplus", "__cplusplus=other"},
                                                                  {"cuda", "CUDA other"},
                                                                  {"sanitizer", "sanitizer other"},
                                                                  {"headers", "other headers of omniloom"},
                                                                  {"sizes", "other sizes of shared types [other]"}};
  for (const auto& [key, words] : cases) {
    Descriptor plugin = *read_descriptor(probe());
    ASSERT_NE(plugin.field(key), "") << key;
    plugin.fields[key] = "other";
    const auto line = explain_mismatch(plugin, "x.so", core_descriptor());
    ASSERT_TRUE(line) << key;
    EXPECT_NE(line->find(words), std::string::npos) << *line;
    EXPECT_EQ(line->find("probe 1.2.0 (x.so) was built "), 0u) << *line;
    EXPECT_EQ(line->find('\n'), std::string::npos);
  }
  Descriptor plugin = *read_descriptor(probe());
  plugin.format = 2;
  EXPECT_EQ(explain_mismatch(plugin, "x.so", core_descriptor()),
            "probe 1.2.0 (x.so) was built with plugin format 2; this core reads format 1. Rebuild the plugin.");
}

}  // namespace
}  // namespace loom
