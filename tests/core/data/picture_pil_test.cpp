// Pictures against PIL: tests/scripts/pictures.py writes files and PIL's own pixels into a folder, lists them in
// index.txt and names the folder in OMNILOOM_PICTURES. Fields of a line are separated by tabs:
//   decoded FILE PIXELS height width channels limit white     resized FILE PIXELS height width channels limit white
//   refused FILE text     huge FILE text
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/data/picture.h"
#include "core/nn/resize.h"

namespace loom::test {
namespace {

class PicturesLikePil : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("OMNILOOM_PICTURES");
    if (folder == nullptr) GTEST_SKIP() << "tests/scripts/pictures.py makes the pictures and runs this";
    folder_ = std::string(folder) + "/";
  }

  std::vector<std::vector<std::string>> cases(const std::string& kind) const {
    std::vector<std::vector<std::string>> out;
    for (const std::string& line : split(read_text(folder_ + "index.txt"), '\n')) {
      std::vector<std::string> fields = split(line, '\t');
      if (fields[0] == kind) out.push_back(std::move(fields));
    }
    return out;
  }

  // Compares and tells the script how many there were.
  void compare(const std::string& kind) const {
    int64_t count = 0;
    std::map<int64_t, int64_t> largest;  // by what is allowed
    for (const std::vector<std::string>& fields : cases(kind)) {
      SCOPED_TRACE(join(fields, " "));
      const int64_t height = std::stoll(fields[3]), width = std::stoll(fields[4]), channels = std::stoll(fields[5]);
      Tensor pixels = read_picture(folder_ + fields[1], "image", {.alpha_on_white = fields[7] == "1"}).data[0];
      if (kind == "resized") pixels = resize_picture(pixels, height, width);
      ASSERT_EQ(pixels.sizes(), (std::vector<int64_t>{height, width, channels}));
      const std::string expected = read_text(folder_ + fields[2]);
      ASSERT_EQ(static_cast<int64_t>(expected.size()), pixels.numel());
      const Tensor theirs =
          at::from_blob(const_cast<char*>(expected.data()), {height, width, channels}, at::kByte).to(at::kLong);
      const int64_t difference = (pixels.to(at::kLong) - theirs).abs().max().item<int64_t>();
      const int64_t limit = std::stoll(fields[6]);
      EXPECT_LE(difference, limit);
      largest[limit] = std::max(largest[limit], difference);
      ++count;
    }
    std::string text;
    for (const auto& [limit, difference] : largest)
      text += concat(", at most ", difference, " where ", limit, " may be");
    std::printf("%s: %ld cases%s\n", kind.c_str(), static_cast<long>(count), text.c_str());
  }

  void refuse(const std::string& kind) const {
    int64_t count = 0;
    for (const std::vector<std::string>& fields : cases(kind)) {
      SCOPED_TRACE(join(fields, " "));
      try {
        read_picture(folder_ + fields[1], "image");
        ADD_FAILURE() << "it was decoded";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find(fields[2]), std::string::npos) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
      ++count;
    }
    std::printf("%s: %ld cases\n", kind.c_str(), static_cast<long>(count));
  }

  std::string folder_;
};

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST_F(PicturesLikePil, HugeClaimsCostNoMemory) {
  const int64_t before = peak_memory();
  refuse("huge");
  EXPECT_LT(peak_memory() - before, 64 << 20);
}

TEST_F(PicturesLikePil, Decoded) { compare("decoded"); }

TEST_F(PicturesLikePil, Resized) { compare("resized"); }

TEST_F(PicturesLikePil, CutOffIsRefused) { refuse("refused"); }

}  // namespace
}  // namespace loom::test
