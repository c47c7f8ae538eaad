// IDX files, whole and broken. Each defect is one line with recipe mark, path, and what was expected and found.
#include "core/data/idx_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/config/yaml_reader.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

using test::line_of;
using test::TempFolder;
using test::write_bytes;

std::string number(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string images(uint32_t count, uint32_t height = 2, uint32_t width = 3) {
  std::string out = number(0x803) + number(count) + number(height) + number(width);
  for (uint32_t i = 0; i < count * height * width; ++i) out += static_cast<char>(i);
  return out;
}

std::string labels(const std::vector<int>& values) {
  std::string out = number(0x801) + number(static_cast<uint32_t>(values.size()));
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class IdxSourceTest : public ::testing::Test {
 protected:
  // A recipe whose source list stands where the program's recipes have it.
  std::unique_ptr<Source> make(const std::string& more = "", const std::string& caption = "a photo of {name}") {
    const std::string text =
        "data:\n  train:\n    - type: idx\n      images: " + (folder_ / "i") + "\n      labels: " + (folder_ / "l") +
        "\n      names: [shirt, bag, '{name} twice', 7]\n      caption: \"" + caption + "\"\n" + more;
    const ConfigValue recipe = read_yaml_text(text, "recipe.yaml");
    const ConfigValue& item = recipe.at("data").at("train").items()[0];
    Mistakes mistakes;
    const ConfigValue checked = validate(item, source_schema(item.at("type")), mistakes);
    mistakes.throw_if_any("recipe.yaml");
    return make_source(checked, 0);
  }
  std::string refusal(const std::string& image_bytes, const std::string& label_bytes) {
    write_bytes(folder_ / "i", image_bytes);
    write_bytes(folder_ / "l", label_bytes);
    return line_of<UserError>([&] { make(); });
  }

  TempFolder folder_;
};

void expect_samples(const Source& source) {
  ASSERT_EQ(source.size(), 3);
  EXPECT_EQ(source.name(), "train.0");
  const RawSample sample = source.read(1);
  EXPECT_EQ(sample.name, "train.0#1");
  EXPECT_EQ(sample.key, source.sample_key(1));
  EXPECT_NE(sample.key, source.sample_key(2));
  ASSERT_EQ(sample.parts.size(), 2u);
  const Media& media = sample.parts[0].media;
  EXPECT_EQ(media.info.modality, "image");
  EXPECT_EQ(media.info.height, 2);
  EXPECT_EQ(media.info.width, 3);
  EXPECT_TRUE(at::equal(media.data, at::arange(6, 12, at::kByte).reshape({1, 2, 3, 1})));
  EXPECT_EQ(sample.parts[1].text, "a photo of shirt");
  EXPECT_TRUE(sample.parts[1].supervised);
  EXPECT_EQ(source.read(0).parts[1].text, "a photo of bag");
  EXPECT_EQ(source.read(2).parts[1].text, "a photo of {name} twice");  // not expanded again
}

TEST_F(IdxSourceTest, ReadsPlainAndGzip) {
  write_bytes(folder_ / "i", images(3));
  write_bytes(folder_ / "l", labels({1, 0, 2}));
  expect_samples(*make());
  write_bytes(folder_ / "i", gzip(images(3)));
  write_bytes(folder_ / "l", gzip(labels({1, 0, 2})));
  expect_samples(*make());
  EXPECT_EQ(make("      limit: 2\n")->size(), 2);
  EXPECT_EQ(make("      weight: 2.5\n")->weight(), 2.5);
  EXPECT_EQ(make()->weight(), 0);
  EXPECT_EQ(make("      modality: thermal\n")->modalities(), std::vector<std::string>{"thermal"});
  EXPECT_EQ(make("", "{name}, {name}")->read(0).parts[1].text, "bag, bag");
}

TEST_F(IdxSourceTest, EveryDefectIsOneLineWithMarkPathExpectedAndFound) {
  const std::string good_images = images(3), good_labels = labels({1, 0, 2});
  const std::string at_images = "recipe.yaml:4:15: data.train.0.images: " + (folder_ / "i") + ": ";
  const std::string at_labels = "recipe.yaml:5:15: data.train.0.labels: " + (folder_ / "l") + ": ";
  const std::string zipped = gzip(images(300, 9, 9));

  EXPECT_HAS(line_of<UserError>([&] { make(); }), at_images + "no such file");
  EXPECT_HAS(refusal("", good_labels), at_images + "truncated: 0 bytes");
  EXPECT_HAS(refusal(good_labels, good_labels),
             at_images + "wrong magic number: expected 0x00000803 (pictures), found 0x00000801");
  EXPECT_HAS(refusal(good_images, good_images),
             at_labels + "wrong magic number: expected 0x00000801 (labels), found 0x00000803");
  EXPECT_HAS(refusal(good_images.substr(0, 10), good_labels),
             at_images + "truncated in its header: expected 16 bytes, found 10");
  EXPECT_HAS(refusal(good_images.substr(0, 25), good_labels),
             at_images + "truncated: expected 18 bytes of data for 3 pictures, found 9");
  EXPECT_HAS(refusal(zipped.substr(0, zipped.size() / 2), good_labels),
             at_images + "truncated: expected 24300 bytes of data for 300 pictures");
  std::string damaged = zipped;
  for (size_t i = damaged.size() / 2; i < damaged.size() / 2 + 40; ++i) damaged[i] = static_cast<char>(~damaged[i]);
  EXPECT_HAS(refusal(damaged, good_labels), at_images + "damaged gzip file: ");
  EXPECT_HAS(refusal(good_images + "x", good_labels), at_images + "longer than its header says");
  EXPECT_HAS(refusal(number(0x803) + number(0) + number(2) + number(3), good_labels),
             at_images + "dimension 0 has size 0");
  EXPECT_HAS(refusal(number(0x803) + std::string(12, '\xff'), good_labels),
             at_images + "its header asks for more than");
  EXPECT_HAS(refusal(good_images, labels({1, 0})), at_labels + "2 labels for 3 pictures");
  EXPECT_HAS(refusal(good_images, labels({1, 0, 9})), at_labels + "label 2 is 9, but names has only 4 entries");

  std::filesystem::remove(folder_ / "i");
  std::filesystem::create_directory(folder_ / "i");
  EXPECT_HAS(line_of<UserError>([&] { make(); }), at_images + "is a folder");
}

TEST_F(IdxSourceTest, MistakesOfTheRecipe) {
  write_bytes(folder_ / "i", images(3));
  write_bytes(folder_ / "l", labels({1, 0, 2}));
  EXPECT_HAS(line_of<UserError>([&] { make("", "a photo"); }),
             "recipe.yaml:7:16: data.train.0.caption: expected a text with {name}");
  ConfigValue type = ConfigValue::string("idxx");
  type.mark = {"recipe.yaml", 3, 13};
  type.path = "data.train.0.type";
  EXPECT_HAS(line_of<UserError>([&] { source_schema(type); }),
             "recipe.yaml:3:13: data.train.0.type: no source type 'idxx'; did you mean 'idx'?");
}

TEST(IdxSourceDebian, FashionMnistWhenInstalled) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  ConfigValue config =
      ConfigValue::map({{"type", ConfigValue::string("idx")},
                        {"images", ConfigValue::string(folder + "t10k-images-idx3-ubyte.gz")},
                        {"labels", ConfigValue::string(folder + "t10k-labels-idx1-ubyte.gz")},
                        {"names", ConfigValue::list(std::vector<ConfigValue>(10, ConfigValue::string("x")))},
                        {"caption", ConfigValue::string("{name}")},
                        {"modality", ConfigValue::string("image")},
                        {"limit", ConfigValue::integer(0)}});
  const std::unique_ptr<Source> source = make_source(config, 3);
  EXPECT_EQ(source->size(), 10000);
  EXPECT_EQ(source->name(), "idx.3");
  EXPECT_TRUE(source->read(9999).parts[0].media.data.sizes() == at::IntArrayRef({1, 28, 28, 1}));
}

}  // namespace
}  // namespace loom
