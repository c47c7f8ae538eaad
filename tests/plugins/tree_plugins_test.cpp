// The plugins that come with the tree, loaded as a user's run loads them and used through their interfaces alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/schema.h"
#include "core/model/component.h"
#include "core/nn/context.h"
#include "plugins/loader/plugin_loader.h"
#include "tests/paths.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

using Values = std::vector<ConfigValue::Entry>;

class TreePlugins : public testing::Test {
 protected:
  TreePlugins() { loader_.add_path(kPluginDir, {}); }

  const ComponentSpec& spec(ComponentKind kind, const std::string& name) {
    return loader_.require(kind, name, {}, "test");
  }
  static ConfigValue checked(const ComponentSpec& spec, Values values) {
    Mistakes mistakes;
    ConfigValue config = validate(ConfigValue::map(std::move(values)), spec.schema, mistakes);
    mistakes.throw_if_any("test");
    return config;
  }
  std::shared_ptr<Encoder> vit(Values values) {
    const ComponentSpec& s = spec(ComponentKind::encoder, "vit");
    declarations_ = {};
    declarations_.component = "encoders.image";
    return s.encoder(checked(s, std::move(values)), Declarer(declarations_));
  }
  std::shared_ptr<Backbone> llama(Values values, int64_t vocab) {
    const ComponentSpec& s = spec(ComponentKind::backbone, "llama");
    declarations_ = {};
    declarations_.component = "backbone";
    return s.backbone(checked(s, std::move(values)), {vocab}, Declarer(declarations_));
  }
  std::shared_ptr<Connector> mlp(Values values, const ConnectorArgs& args) {
    const ComponentSpec& s = spec(ComponentKind::connector, "mlp");
    declarations_ = {};
    declarations_.component = "connectors.image";
    return s.connector(checked(s, std::move(values)), args, Declarer(declarations_));
  }
  // Runs all units with random parameters.
  Streams run(Component& component, Streams streams, const Partitions& partitions) {
    at::manual_seed(5);
    bound_.clear();
    for (const ParamDecl& p : declarations_.params) bound_.push_back(at::randn(p.shape) * 0.3);
    for (size_t unit = 0; unit < declarations_.units.size(); ++unit) {
      ContextState state;
      state.declarations = &declarations_;
      state.bound = &bound_;
      state.partitions = &partitions;
      state.phase = Phase::evaluate;
      state.unit = static_cast<int>(unit);
      UnitContext ctx(state);
      component.run(static_cast<int>(unit), streams, ctx);
    }
    return streams;
  }
  bool declares(const std::string& name) const {
    for (const ParamDecl& p : declarations_.params) {
      if (p.name == name) return true;
    }
    return false;
  }

  Registry registry_;
  PluginLoader loader_{registry_};
  Declarations declarations_;
  std::vector<at::Tensor> bound_;
};

ConfigValue number(int64_t v) { return ConfigValue::integer(v); }

Values small_vit() {
  return {{"image_size", number(8)}, {"patch", number(4)}, {"channels", number(2)}, {"width", number(12)},
          {"depth", number(2)},      {"heads", number(3)}, {"hidden", number(20)}};
}

Media picture(int64_t height, int64_t width, int64_t channels) {
  Media media;
  media.info.modality = "image";
  media.info.height = height;
  media.info.width = width;
  media.info.channels = channels;
  media.data = at::randint(0, 256, {1, height, width, channels}, at::kByte);
  return media;
}

TEST_F(TreePlugins, VitMeasuresAndPrepares) {
  const auto encoder = vit(small_vit());
  const Media media = picture(8, 8, 2);
  const ItemMeta meta = encoder->measure(media.info);
  EXPECT_EQ(meta.tokens, 4);
  EXPECT_EQ(meta.outputs, 4);
  EXPECT_GT(meta.cost, 0);
  EXPECT_EQ(encoder->media_width(), 32);
  EXPECT_EQ(encoder->width(), 12);
  const Tensor patches = encoder->prepare(media, Philox({}));
  ASSERT_EQ(patches.sizes(), (std::vector<int64_t>{4, 32}));
  // Patch (1, 0), channel 1, pixel (2, 3) is row 2, column 1 * 16 + 2 * 4 + 3.
  EXPECT_FLOAT_EQ(patches[2][27].item<float>(), (media.data[0][6][3][1].item<float>() / 255 - 0.5F) / 0.5F);
  EXPECT_EQ(encoder->layout(meta).partitions.at("").lengths, std::vector<int64_t>{4});
}

TEST_F(TreePlugins, VitFitsPicturesOfOtherSizes) {
  const auto fitted = [&](const char* fit, const Media& media) {
    const auto encoder = vit({{"image_size", number(8)},
                              {"patch", number(8)},
                              {"fit", ConfigValue::string(fit)},
                              {"mean", number(0)},
                              {"std", number(1)}});
    EXPECT_EQ(encoder->measure(media.info).tokens, 1);
    return (encoder->prepare(media, Philox({})) * 255).round().view({8, 8});
  };
  Media wide = picture(16, 48, 1);  // three squares: 10, 200, 30; the middle one is the centre
  wide.data.fill_(10);
  wide.data.narrow(2, 16, 16).fill_(200);
  wide.data.narrow(2, 32, 16).fill_(30);
  EXPECT_EQ(fitted("crop", wide).narrow(1, 2, 4).min().item<float>(), 200);
  EXPECT_EQ(fitted("crop", wide).narrow(1, 2, 4).max().item<float>(), 200);
  const Tensor squashed = fitted("squash", wide);
  EXPECT_EQ(squashed[4][0].item<float>(), 10);
  EXPECT_EQ(squashed[4][7].item<float>(), 30);
  const Tensor padded = fitted("pad", wide);
  EXPECT_EQ(padded[0][4].item<float>(), 0);
  EXPECT_GT(padded[4][4].item<float>(), 150);
  Media colour = picture(8, 8, 3);
  colour.data.fill_(0);
  colour.data.select(3, 1).fill_(100);
  EXPECT_EQ(fitted("crop", colour).max().item<float>(), 59);  // luma of green
}

TEST_F(TreePlugins, VitNamesWhatItExpected) {
  const auto encoder = vit(small_vit());
  try {
    encoder->measure(picture(8, 8, 3).info);
    ADD_FAILURE() << "a picture of three channels was accepted";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "vit: expected 2 channels, found 3");
  }
  EXPECT_THROW(encoder->measure(picture(8, 0, 2).info), UserError);
  EXPECT_THROW(vit({{"image_size", number(9)}, {"patch", number(4)}}), UserError);
  EXPECT_THROW(vit({{"width", number(10)}, {"heads", number(3)}}), UserError);
}

TEST_F(TreePlugins, VitRunsAndItemsDoNotMix) {
  const auto encoder = vit(small_vit());
  const Partitions two{{"", segments_of({4, 4})}}, one{{"", segments_of({4})}};
  const Tensor media = at::randn({8, 32});
  Streams streams;
  streams.set("media", media);
  const Tensor features = run(*encoder, streams, two)["features"];
  ASSERT_EQ(features.sizes(), (std::vector<int64_t>{8, 12}));
  streams.set("media", media.narrow(0, 4, 4).contiguous());
  const Tensor alone = run(*encoder, streams, one)["features"];
  EXPECT_LE(relative_difference(features.narrow(0, 4, 4), alone), 2e-6);
}

TEST_F(TreePlugins, LlamaLogProbsAreThoseOfItsLogits) {
  for (const bool tied : {true, false}) {
    const auto backbone = llama({{"width", number(16)},
                                 {"depth", number(2)},
                                 {"heads", number(4)},
                                 {"kv_heads", number(2)},
                                 {"ffn", number(24)},
                                 {"tied", ConfigValue::boolean(tied)},
                                 {"qk_norm", ConfigValue::boolean(true)}},
                                13);
    EXPECT_EQ(backbone->vocab(), 13);
    EXPECT_EQ(declares("backbone.head.weight"), !tied);
    EXPECT_TRUE(declares("backbone.blocks.1.attention.qkv.weight"));
    const Partitions text{{"", segments_of({5, 3})}};
    Streams streams;
    streams.set("tokens", at::randint(0, 13, {8}, at::kLong));
    streams.set("loss_rows", at::tensor({0, 3, 6}, at::kLong));
    const Tensor logits = run(*backbone, streams, text)["logits"];
    ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{3, 13}));
    const Tensor targets = at::tensor({12, 0, 4}, at::kLong);
    streams.set("targets", targets);
    const Tensor found = run(*backbone, streams, text)["logprob"];
    const Tensor expected = at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
    EXPECT_LE(relative_difference(found, expected), 1e-5);
  }
}

TEST_F(TreePlugins, LlamaSaysWhatDoesNotFit) {
  EXPECT_THROW(llama({{"heads", number(4)}, {"kv_heads", number(3)}}, 13), UserError);
  EXPECT_THROW(llama({{"width", number(10)}, {"heads", number(4)}}, 13), UserError);
  EXPECT_THROW(llama({{"vocab", number(5)}}, 13), UserError);
  EXPECT_EQ(llama({{"vocab", number(20)}}, 13)->vocab(), 20);
}

TEST_F(TreePlugins, MlpMergesRowsOfAnItem) {
  const auto connector =
      mlp({{"hidden", number(7)}, {"merge", number(2)}, {"norm", ConfigValue::string("layer")}}, {6, 10});
  EXPECT_EQ(connector->merge(), 2);
  EXPECT_TRUE(declares("connectors.image.project.fc1.weight"));
  const Partitions parts{{"", segments_of({4, 2})}, {"slots", segments_of({2, 1})}};
  const Tensor features = at::randn({6, 6});
  Streams streams;
  streams.set("features", features);
  const Tensor found = run(*connector, streams, parts)["embeddings"];
  ASSERT_EQ(found.sizes(), (std::vector<int64_t>{3, 10}));
  const Tensor changed = features.clone();
  changed[4].fill_(9);
  streams.set("features", changed);
  const Tensor after = run(*connector, streams, parts)["embeddings"];
  EXPECT_TRUE(same_bits(after.narrow(0, 0, 2), found.narrow(0, 0, 2)));
  EXPECT_FALSE(same_bits(after[2], found[2]));
}

// Every external name must lead to something that a model with all options declares, and every parameter must have one.
TEST_F(TreePlugins, WeightRulesMeetTheDeclarations) {
  const auto check = [&](const ComponentSpec& s) {
    for (const ParamDecl& p : declarations_.params) {
      std::string name = p.name.substr(declarations_.component.size() + 1);
      const size_t digit = name.find_first_of("0123456789");
      if (name.rfind("blocks.", 0) == 0) name.replace(digit, 1, "*");
      std::vector<std::string> wanted;
      for (const Part& part : p.parts) wanted.push_back(name + "#" + part.name);
      if (wanted.empty()) wanted.push_back(name);
      for (const std::string& ours : wanted) {
        const auto found =
            std::count_if(s.weights.begin(), s.weights.end(), [&](const WeightRule& r) { return r.ours == ours; });
        EXPECT_EQ(found, 1) << ours;
      }
    }
  };
  vit(small_vit());
  check(spec(ComponentKind::encoder, "vit"));
  const ConfigValue yes = ConfigValue::boolean(true);
  llama({{"depth", number(1)},
         {"qkv_bias", yes},
         {"out_bias", yes},
         {"mlp_bias", yes},
         {"qk_norm", yes},
         {"tied", ConfigValue::boolean(false)}},
        13);
  check(spec(ComponentKind::backbone, "llama"));
  mlp({}, {6, 10});
  check(spec(ComponentKind::connector, "mlp"));
}

}  // namespace
}  // namespace loom::test
