// The norm against ATen's, its independence of threads, ranks and layouts, and the name of what went wrong.
#include "core/train/grad_norm.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "core/comm/loopback.h"
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

// The norms that all ranks get when each holds its parts of the gradients that one rank has; `poison` is put into them
// first.
std::vector<GradNorm> norms_on(int world, int shard, Buffers& whole,
                               const std::function<void(const BufferEntry&, at::Tensor)>& poison = {}) {
  std::map<std::string, at::Tensor> gradients;
  for (UnitBuffer* buffer : whole.all()) {
    for (size_t e = 0; buffer->trainable() && e < buffer->entries().size(); ++e)
      gradients[buffer->entries()[e].name] = buffer->gradient_of(e);
  }
  std::vector<GradNorm> norms(static_cast<size_t>(world));
  run_loopback(world, [&](Communicator& comm) {
    Buffers parts(whole[0].master().scalar_type(), test::sharding_on(comm, shard));
    for (UnitBuffer* buffer : parts.all()) {
      for (size_t e = 0; buffer->trainable() && e < buffer->entries().size(); ++e) {
        const BufferEntry& entry = buffer->entries()[e];
        buffer->gradient_of(e).copy_(test::part_of(gradients.at(entry.name), entry));
        if (poison) poison(entry, buffer->gradient_of(e));
      }
    }
    norms[static_cast<size_t>(comm.rank())] = gradient_norm(parts.all(), comm);
  });
  return norms;
}

TEST(GradNorm, EveryLayoutCountsEachElementOnce) {
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    Buffers whole(type);
    whole.randomize(7);
    const GradNorm wanted = gradient_norm(whole.all());
    for (int world : {1, 2, 4}) {
      for (int shard = 1; shard <= world; shard *= 2) {
        const std::vector<GradNorm> norms = norms_on(world, shard, whole);
        for (const GradNorm& norm : norms) {
          EXPECT_NEAR(norm.total, wanted.total, 1e-13 * wanted.total) << shard << " of " << world;
          ASSERT_EQ(norm.components.size(), wanted.components.size());
          for (size_t c = 0; c < norm.components.size(); ++c) {
            EXPECT_EQ(norm.components[c].first, wanted.components[c].first);
            EXPECT_NEAR(norm.components[c].second, wanted.components[c].second, 1e-13 * wanted.total);
            EXPECT_EQ(norm.components[c].second, norms[0].components[c].second);  // the same bits everywhere
          }
          EXPECT_EQ(norm.total, norms[0].total);
          EXPECT_TRUE(norm.finite());
        }
      }
    }
  }
}

TEST(GradNorm, AllRanksNameTheSameParameter) {
  Buffers whole(at::kFloat);
  whole.randomize(8);
  // The last row of one and the whole of a later one: with four ranks they lie on different ones.
  const auto poison = [](const BufferEntry& entry, at::Tensor gradient) {
    const bool end = !entry.box.size.empty() && entry.box.offset[0] + entry.box.size[0] == entry.global_shape[0];
    if (entry.name == "backbone.embed.weight" && end) gradient.select(0, -1).fill_(std::nan(""));
    if (entry.name == "backbone.head.bias") gradient.fill_(std::numeric_limits<double>::infinity());
  };
  for (int shard : {1, 2, 4}) {
    for (const GradNorm& norm : norms_on(4, shard, whole, poison)) {
      EXPECT_EQ(norm.not_finite, "backbone.embed.weight");
      EXPECT_FALSE(std::isfinite(norm.total));
    }
  }
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
