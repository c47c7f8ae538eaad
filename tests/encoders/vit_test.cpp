// The vision transformer's pictures: which shape they get, which rows they become, and what people are shown of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/schema.h"
#include "core/model/component.h"
#include "core/nn/context.h"
#include "core/nn/resize.h"
#include "plugins/loader/plugin_loader.h"
#include "tests/paths.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

using Values = std::vector<ConfigValue::Entry>;

ConfigValue number(int64_t value) { return ConfigValue::integer(value); }

Media picture(int64_t height, int64_t width, int64_t channels) {
  Media media;
  media.info.modality = "image";
  media.info.height = height;
  media.info.width = width;
  media.info.channels = channels;
  media.data = at::randint(0, 256, {1, height, width, channels}, at::kByte);
  return media;
}

class Vit : public testing::Test {
 protected:
  Vit() {
    loader_.add_path(kPluginDir, {});
    at::manual_seed(3);
  }

  // Pictures of at most 24 pixels in patches of 4.
  std::shared_ptr<Encoder> vit(const std::string& fit, int64_t channels, Values more = {}) {
    const ComponentSpec& spec = loader_.require(ComponentKind::encoder, "vit", {}, "test");
    Values values = {{"image_size", number(24)},     {"patch", number(4)},
                     {"channels", number(channels)}, {"width", number(12)},
                     {"depth", number(1)},           {"heads", number(3)},
                     {"hidden", number(8)},          {"fit", ConfigValue::string(fit)}};
    values.insert(values.end(), more.begin(), more.end());
    Mistakes mistakes;
    const ConfigValue config = validate(ConfigValue::map(std::move(values)), spec.schema, mistakes);
    mistakes.throw_if_any("test");
    declarations_ = {};
    declarations_.component = "encoders.image";
    return spec.encoder(config, Declarer(declarations_));
  }

  static at::Tensor shown(const Encoder& encoder, const Media& media) {
    const at::Tensor out = encoder.show(encoder.prepare(media, Philox({})), encoder.measure(media.info));
    EXPECT_EQ(out.scalar_type(), at::kByte);
    EXPECT_EQ(out.dim(), 4);
    return out[0];
  }

  // The shape that a picture of this size gets, in patches.
  static std::vector<int64_t> grid(const Encoder& encoder, int64_t height, int64_t width) {
    MediaInfo info;
    info.height = height;
    info.width = width;
    info.channels = 1;
    const ItemMeta meta = encoder.measure(info);
    EXPECT_EQ(meta.tokens, meta.grid[0] * meta.grid[1]);
    EXPECT_EQ(meta.outputs, meta.tokens);
    return meta.grid;
  }

  // The encoder's outputs for a pack of pictures, with parameters that depend on their shapes alone.
  at::Tensor features(Encoder& encoder, const std::vector<Media>& pictures) {
    Segments segments;
    std::vector<at::Tensor> rows;
    for (const Media& media : pictures) {
      rows.push_back(encoder.prepare(media, Philox({})));
      const ItemLayout layout = encoder.layout(encoder.measure(media.info));
      const ItemPartition& part = layout.partitions.at("");
      segments.position_axes = part.position_axes;
      segments.append(part.rows(), {.occurrence = rows.size()}, part.positions);
    }
    at::manual_seed(5);
    std::vector<at::Tensor> bound;
    for (const ParamDecl& p : declarations_.params) bound.push_back(at::randn(p.shape) * 0.3);
    const Partitions partitions{{"", segments}};
    Streams streams;
    streams.set("media", at::cat(rows));
    for (size_t unit = 0; unit < declarations_.units.size(); ++unit) {
      ContextState state;
      state.declarations = &declarations_;
      state.bound = &bound;
      state.partitions = &partitions;
      state.phase = Phase::evaluate;
      state.unit = static_cast<int>(unit);
      UnitContext ctx(state);
      encoder.run(static_cast<int>(unit), streams, ctx);
    }
    return streams["features"];
  }

  Registry registry_;
  PluginLoader loader_{registry_};
  Declarations declarations_;
};

using Grid = std::vector<int64_t>;

TEST_F(Vit, ShowsTheFittedPicture) {
  for (const int64_t channels : {1, 3}) {
    const Media same = picture(24, 24, channels), other = picture(31, 18, channels);
    for (const char* fit : {"crop", "squash", "pad", "native"}) {
      const auto encoder = vit(fit, channels);
      EXPECT_TRUE(at::equal(shown(*encoder, same), same.data[0])) << fit;
      EXPECT_EQ(shown(*encoder, other).size(2), channels) << fit;
    }
    EXPECT_TRUE(at::equal(shown(*vit("squash", channels), other), resize_picture(other.data[0], 24, 24)));
    const at::Tensor cropped = resize_picture(other.data[0], 41, 24).narrow(0, 8, 24);
    EXPECT_TRUE(at::equal(shown(*vit("crop", channels), other), cropped));
    const at::Tensor padded = shown(*vit("pad", channels), other);
    EXPECT_TRUE(at::equal(padded.narrow(1, 5, 14), resize_picture(other.data[0], 24, 14)));
    EXPECT_TRUE((padded.narrow(1, 0, 5) == 128).all().item<bool>());
    EXPECT_TRUE(at::equal(shown(*vit("native", channels), other), resize_picture(other.data[0], 24, 12)));
  }
}

TEST_F(Vit, ShowsWhatTheModelSeesOfAnotherChannelCountAndNormalisation) {
  const Media grey = picture(24, 24, 1);
  const auto encoder = vit("crop", 3, {{"mean", ConfigValue::number(0.3)}, {"std", ConfigValue::number(0.2)}});
  const at::Tensor out = shown(*encoder, grey);
  EXPECT_TRUE(at::equal(out, grey.data[0].expand({24, 24, 3})));
}

TEST_F(Vit, NativeKeepsTheShapeAndLimitsTheSize) {
  const auto encoder = vit("native", 1);
  EXPECT_EQ(grid(*encoder, 24, 24), (Grid{6, 6}));
  EXPECT_EQ(grid(*encoder, 8, 20), (Grid{2, 5}));   // small pictures stay small
  EXPECT_EQ(grid(*encoder, 9, 15), (Grid{2, 4}));   // to the nearest patch
  EXPECT_EQ(grid(*encoder, 48, 24), (Grid{6, 3}));  // halved
  EXPECT_EQ(grid(*encoder, 1, 300), (Grid{1, 6}));  // never less than a patch
  EXPECT_EQ(grid(*encoder, 1, 1), (Grid{1, 1}));
  EXPECT_EQ(grid(*encoder, 100000, 99000), (Grid{6, 6}));
  int64_t before = 0;
  for (int64_t side = 1; side < 60; ++side) {  // a smaller picture never costs more
    const Grid g = grid(*encoder, side, 2 * side);
    EXPECT_GE(g[0] * g[1], before);
    EXPECT_LE(g[1], 6);
    before = g[0] * g[1];
  }
}

TEST_F(Vit, NativeGridsAreMultiplesForConnectorsThatMerge) {
  const auto encoder = vit("native", 1, {{"multiple", number(2)}});
  EXPECT_EQ(grid(*encoder, 24, 24), (Grid{6, 6}));
  EXPECT_EQ(grid(*encoder, 8, 20), (Grid{2, 6}));
  EXPECT_EQ(grid(*encoder, 1, 1), (Grid{2, 2}));
  const auto four = vit("native", 1, {{"multiple", number(4)}});
  EXPECT_EQ(grid(*four, 24, 24), (Grid{4, 4}));  // 24 is no multiple of 16
  const Media media = picture(13, 50, 1);
  EXPECT_EQ(shown(*encoder, media).sizes(), (std::vector<int64_t>{8, 24, 1}));
  EXPECT_EQ(encoder->prepare(media, Philox({})).sizes(), (std::vector<int64_t>{12, 16}));
}

TEST_F(Vit, NativeRowsHavePositionsOnTheTable) {
  const auto encoder = vit("native", 1);
  MediaInfo info;
  info.height = 8;
  info.width = 12;
  info.channels = 1;
  const ItemMeta meta = encoder->measure(info);
  const ItemLayout layout = encoder->layout(meta);
  EXPECT_EQ(layout_mistake(layout, meta), "");
  const ItemPartition& rows = layout.partitions.at("");
  EXPECT_EQ(rows.position_axes, 2);
  EXPECT_EQ(rows.lengths, (std::vector<int64_t>{6}));
  EXPECT_EQ(rows.positions, (std::vector<int64_t>{0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2}));
  EXPECT_EQ(vit("crop", 1)->layout(meta).partitions.at("").position_axes, 1);
}

TEST_F(Vit, NativeRunsAsTheSquareDoes) {
  const Media square = picture(24, 24, 1), small = picture(8, 12, 1);
  const auto crop = vit("crop", 1);
  const at::Tensor expected = features(*crop, {square});
  const auto native = vit("native", 1);
  EXPECT_LE(relative_difference(features(*native, {square}), expected), 1e-6);
  const at::Tensor both = features(*native, {small, square});
  ASSERT_EQ(both.sizes(), (std::vector<int64_t>{6 + 36, 12}));
  EXPECT_LE(relative_difference(both.narrow(0, 6, 36), expected), 2e-6);
  EXPECT_LE(relative_difference(both.narrow(0, 0, 6), features(*native, {small})), 2e-6);
}

TEST_F(Vit, ConfigsThatDoNotFitAreRefused) {
  EXPECT_THROW(vit("crop", 1, {{"multiple", number(2)}}), UserError);
  EXPECT_THROW(vit("native", 1, {{"multiple", number(7)}}), UserError);
  EXPECT_NO_THROW(vit("native", 1, {{"multiple", number(6)}}));
}

}  // namespace
}  // namespace loom::test
