// The norm against ATen's, its independence of threads, and the name of what went wrong.
#include "core/train/grad_norm.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/core/train/buffers.h"

namespace loom {
namespace {

using test::Buffers;

double reference_norm(Buffers& buffers, size_t buffer) {
  double sum = 0;
  for (size_t e = 0; e < buffers[buffer].entries().size(); ++e) {
    sum += buffers[buffer].gradient_of(e).to(at::kDouble).square().sum().item<double>();
  }
  return sum;
}

TEST(GradNorm, EqualsTheNormOfAllElements) {
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    Buffers buffers(type);
    buffers.randomize(3);
    const GradNorm norm = gradient_norm(buffers.all());
    const double image = reference_norm(buffers, 0), backbone = reference_norm(buffers, 1);
    EXPECT_NEAR(norm.total, std::sqrt(image + backbone), 1e-12 * norm.total);
    ASSERT_EQ(norm.components.size(), 2u);  // the frozen one does not count
    EXPECT_EQ(norm.components[0].first, "encoders.image");
    EXPECT_EQ(norm.components[1].first, "backbone");
    EXPECT_NEAR(norm.components[0].second, std::sqrt(image), 1e-12 * norm.total);
    EXPECT_NEAR(norm.components[1].second, std::sqrt(backbone), 1e-12 * norm.total);
    EXPECT_TRUE(norm.finite());
  }
}

TEST(GradNorm, PaddingBetweenEntriesDoesNotCount) {
  Buffers buffers(at::kFloat);
  buffers.randomize(3);
  const double before = gradient_norm(buffers.all()).total;
  const std::vector<BufferEntry>& entries = buffers[0].entries();
  const int64_t padding = entries[0].offset + entries[0].numel;
  ASSERT_LT(padding, entries[1].offset);
  buffers[0].gradient()[padding].fill_(1e6);
  EXPECT_EQ(gradient_norm(buffers.all()).total, before);
}

TEST(GradNorm, DoesNotDependOnThreads) {
  Buffers buffers(at::kFloat);
  buffers.randomize(4);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = gradient_norm(buffers.all()).total;
  at::set_num_threads(2);
  const double two = gradient_norm(buffers.all()).total;
  at::set_num_threads(threads);
  EXPECT_EQ(std::memcmp(&one, &two, sizeof one), 0);
}

TEST(GradNorm, NamesTheFirstParameterThatIsNotFinite) {
  for (double poison : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Buffers buffers(at::kFloat);
    buffers.randomize(5);
    buffers[1].gradient_of(1)[160].fill_(poison);
    buffers[1].gradient_of(0)[210][162].fill_(poison);
    const GradNorm norm = gradient_norm(buffers.all());
    EXPECT_FALSE(norm.finite());
    EXPECT_FALSE(std::isfinite(norm.total));
    EXPECT_EQ(norm.not_finite, "backbone.embed.weight");
    EXPECT_TRUE(std::isfinite(norm.components[0].second));
  }
}

TEST(GradNorm, LargeFloatsDoNotOverflow) {
  Buffers buffers(at::kFloat);
  buffers[0].gradient_of(1).fill_(1e30);
  const GradNorm norm = gradient_norm(buffers.all());
  EXPECT_TRUE(norm.finite());
  EXPECT_NEAR(norm.total, 1e30 * std::sqrt(13.0), 1e24);
}

TEST(GradNorm, ClipFactor) {
  EXPECT_EQ(clip_factor(5, 0), 1);
  EXPECT_EQ(clip_factor(5, -1), 1);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
}

}  // namespace
}  // namespace loom
