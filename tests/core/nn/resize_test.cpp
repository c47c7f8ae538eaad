// Resizing against values that PIL 13 gave; random pictures against PIL itself are tests/scripts/pictures.py.
#include "core/nn/resize.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace loom::test {
namespace {

at::Tensor grey(std::vector<int64_t> values, int64_t height, int64_t width) {
  return at::tensor(values).to(at::kByte).view({height, width, 1});
}

at::Tensor five_by_four() {
  return grey({255, 228, 34, 121, 243, 189, 6, 131, 102, 168, 82, 193, 187, 150, 81, 243, 205, 24, 236, 8}, 4, 5);
}

TEST(Resize, EqualsPil) {
  const at::Tensor from = five_by_four();
  const at::Tensor wide =
      grey({250, 206, 128, 55, 88, 169, 236, 130, 102, 108, 168, 135, 120, 124, 196, 216, 174, 67, 191, 141, 10}, 3, 7);
  const at::Tensor high = grey({255, 87,  193, 231, 86,  184, 162, 82,  164, 107, 93,  142, 105, 143,
                                123, 126, 186, 109, 168, 165, 104, 215, 122, 104, 235, 106, 104},
                               9, 3);
  EXPECT_TRUE(at::equal(resize_picture(from, 3, 7), wide));
  EXPECT_TRUE(at::equal(resize_picture(from, 9, 3), high));
  EXPECT_TRUE(at::equal(resize_picture(from, 2, 2), grey({142, 135, 159, 121}, 2, 2)));
  EXPECT_TRUE(at::equal(resize_picture(from, 4, 5), from));
}

TEST(Resize, ChannelsAreIndependentAndFloatsAreAsBytes) {
  at::manual_seed(1);
  const at::Tensor pixels = at::randint(0, 256, {31, 17, 3}, at::kByte);
  const at::Tensor together = resize_picture(pixels, 13, 29);
  EXPECT_TRUE(together.is_contiguous());
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_TRUE(at::equal(together.narrow(2, c, 1), resize_picture(pixels.narrow(2, c, 1), 13, 29)));
  }
  const at::Tensor four = at::cat({pixels, pixels.narrow(2, 0, 1)}, 2);
  EXPECT_TRUE(at::equal(resize_picture(four, 13, 29).narrow(2, 0, 3), together));
  const at::Tensor floats = resize_picture(pixels.to(at::kFloat), 13, 29);
  EXPECT_EQ(floats.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(floats, together.to(at::kFloat)));
}

TEST(Resize, ExtremeShapesKeepAConstantPicture) {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {1, 300}, {300, 1}, {2, 3}}) {
    const at::Tensor pixels = at::full({height, width, 3}, 77, at::kByte);
    for (const auto& [to_height, to_width] :
         {std::pair<int64_t, int64_t>{28, 28}, {1, 1}, {1, 301}, {299, 1}, {3, 2}}) {
      const at::Tensor out = resize_picture(pixels, to_height, to_width);
      EXPECT_EQ(out.sizes(), (std::vector<int64_t>{to_height, to_width, 3}));
      EXPECT_TRUE((out == 77).all().item<bool>());
    }
  }
}

TEST(Resize, OvershootIsClampedBetweenThePasses) {
  // Stripes in x, a step in y: without the clamp the sums would leave 0..255 and wrap.
  const at::Tensor x = at::arange(12).remainder(2).view({1, 12, 1}), y = at::arange(12).ge(6).view({12, 1, 1});
  const at::Tensor pixels = (x.eq(1) & y).mul(255).to(at::kByte).expand({12, 12, 1});
  const at::Tensor out = resize_picture(pixels, 19, 31);
  EXPECT_EQ(out.max().item<int64_t>(), 255);
  EXPECT_EQ(out.min().item<int64_t>(), 0);
}

}  // namespace
}  // namespace loom::test
