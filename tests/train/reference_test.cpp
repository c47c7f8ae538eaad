// Fifty steps of the demo's kind of model against the same model in plain PyTorch (tests/reference/reference.py): same
// initial weights, same batches, its AdamW, its clipping. Samples are packed, split over microbatches, unevenly
// supervised, with no, one or two pictures each; over there every sample runs alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/file.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/safetensors.h"
#include "core/data/loader.h"
#include "core/train/trainer.h"
#include "plugins/loader/plugin_loader.h"
#include "tests/paths.h"

namespace loom {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSteps = 50, kBudget = 80, kVocab = 53, kSide = 12, kClasses = 6;
constexpr double kClip = 1.8;

struct Variant {
  Json vit, mlp, llama;
};

Variant variant(bool qwen_like) {
  Variant v;
  v.vit = {{"image_size", kSide}, {"patch", 3}, {"channels", 3}, {"width", 24},
           {"depth", 2},          {"heads", 2}, {"hidden", 48},  {"norm_eps", 1e-6}};
  v.mlp = {{"hidden", 40}, {"merge", qwen_like ? 2 : 4}};
  v.llama = {{"width", 32},          {"depth", 2},        {"heads", 4},
             {"kv_heads", 2},        {"ffn", 48},         {"vocab", kVocab},
             {"norm_eps", 1e-6},     {"rope_theta", 1e4}, {"qkv_bias", qwen_like},
             {"qk_norm", qwen_like}, {"tied", !qwen_like}};
  return v;
}

ConfigValue to_config(const Json& json) {
  if (json.is_boolean()) return ConfigValue::boolean(json.get<bool>());
  if (json.is_number_integer()) return ConfigValue::integer(json.get<int64_t>());
  if (json.is_number()) return ConfigValue::number(json.get<double>());
  if (json.is_string()) return ConfigValue::string(json.get<std::string>());
  ConfigValue map = ConfigValue::map();
  for (const auto& [key, value] : json.items()) map.set(key, to_config(value));
  return map;
}

// Samples of one step; the caption says which pattern the pictures show.
class Batches {
 public:
  Batches(Encoder& encoder, int64_t merge) : encoder_(encoder), merge_(merge) {}

  LoadedStep step(int64_t number) {
    const Philox random({11, Purpose::sample, 0, static_cast<uint64_t>(number), 0, 0});
    LoadedStep loaded;
    std::vector<Verdict> verdicts;
    const auto count = static_cast<int64_t>(4 + random.below(5, 0));
    for (int64_t i = 0; i < count; ++i) {
      loaded.samples.push_back(sample(number, i));
      verdicts.push_back(loaded.samples.back().verdict);
    }
    loaded.plan = make_step_plan(number, std::move(verdicts), kBudget, static_cast<uint64_t>(number) * 100);
    return loaded;
  }

  // What the reference reads.
  Json json_of(const LoadedStep& loaded) {
    Json out = Json::array();
    for (const PreparedSample& sample : loaded.samples) {
      Json targets = Json::array(), items = Json::array();
      for (size_t t = 0; t < sample.tokens.size(); ++t) {
        if (sample.supervised[t] != 0) targets.push_back(t);
      }
      for (size_t i = 0; i < sample.media.size(); ++i) {
        const std::string name = sample.verdict.name + "." + std::to_string(i);
        items.push_back({{"begin", sample.verdict.items[i].begin}, {"media", name}});
        media.push_back({name, sample.media[i]});
      }
      out.push_back({{"tokens", sample.tokens}, {"supervised", targets}, {"items", items}});
    }
    return out;
  }

  std::vector<KeyedTensor> media;

 private:
  PreparedSample sample(int64_t step, int64_t index) {
    const auto key = static_cast<uint64_t>(step * 100 + index);
    const Philox random({12, Purpose::sample, 0, 0, key, 0});
    uint64_t draw = 0;
    PreparedSample out;
    out.verdict.sample = out.verdict.position = key;
    out.verdict.name = "s" + std::to_string(key);
    const uint64_t kind = random.below(kClasses, draw++);
    const uint64_t pictures = index == 0 ? 1 : random.below(3, draw++);
    const auto text = [&](int64_t tokens, bool supervised) {
      for (int64_t t = 0; t < tokens; ++t) {
        // Mostly predictable from the pattern and the place, so that there is something to learn.
        const uint64_t noise = random.below(10, draw++);
        out.tokens.push_back(noise == 0
                                 ? 1 + static_cast<int64_t>(random.below(kVocab - 1, draw++))
                                 : 1 + static_cast<int64_t>((7 * kind + static_cast<uint64_t>(t)) % (kVocab - 1)));
        out.supervised.push_back(supervised ? 1 : 0);
      }
    };
    text(1 + static_cast<int64_t>(random.below(3, draw++)), false);
    for (uint64_t p = 0; p < pictures; ++p) {
      add_picture(out, kind, random, draw);
      if (p == 0) text(1, false);
    }
    text(1 + static_cast<int64_t>(random.below(12, draw++)), true);
    out.verdict.tokens = static_cast<int64_t>(out.tokens.size());
    out.verdict.supervised = std::count(out.supervised.begin(), out.supervised.end(), 1);
    return out;
  }

  void add_picture(PreparedSample& out, uint64_t kind, const Philox& random, uint64_t& draw) {
    Media picture;
    picture.info = {"image", 1, kSide, kSide, 3, 0};
    picture.data = at::empty({1, kSide, kSide, 3}, at::kByte);
    auto* pixels = picture.data.mutable_data_ptr<uint8_t>();
    for (int64_t i = 0; i < picture.data.numel(); ++i) {
      const int64_t x = i / 3 % kSide, y = i / 3 / kSide;
      const bool bright = (x * static_cast<int64_t>(kind + 1) / 4 + y / 3) % 2 == 0;
      pixels[i] = static_cast<uint8_t>((bright ? 150 : 20) + random.below(80, draw++));
    }
    ItemPlace place;
    place.modality = "image";
    place.meta = encoder_.measure(picture.info);
    place.begin = static_cast<int64_t>(out.tokens.size());
    place.slots = place.meta.outputs / merge_;
    out.tokens.insert(out.tokens.end(), static_cast<size_t>(place.slots), 0);
    out.supervised.insert(out.supervised.end(), static_cast<size_t>(place.slots), 0);
    out.verdict.items.push_back(place);
    out.media.push_back(encoder_.prepare(picture, random));
  }

  Encoder& encoder_;
  int64_t merge_;
};

class ReferenceTest : public testing::Test {
 protected:
  ReferenceTest() : folder_(testing::TempDir() + "reference_test_" + std::to_string(getpid())), loader_(registry_) {
    std::filesystem::remove_all(folder_);
    make_dirs(folder_);
  }
  ~ReferenceTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<MultimodalModel> make_model(const Variant& v, at::ScalarType dtype) {
    BindOptions options;
    options.master = options.compute = dtype;
    options.origin = "reference test";
    ModelParts parts;
    const auto bind = [&](const std::string& name, const auto& make) {
      Declarations declarations;
      declarations.component = name;
      const auto component = make(Declarer(declarations));
      return std::make_pair(std::make_shared<BoundComponent>(component, std::move(declarations), options), component);
    };
    const auto config = [&](const ComponentSpec& spec, const Json& json) {
      Mistakes mistakes;
      const ConfigValue value = validate(to_config(json), spec.schema, mistakes);
      mistakes.throw_if_any("reference");
      return value;
    };
    const ComponentSpec& vit = loader_.require(ComponentKind::encoder, "vit", {}, "model.encoders.image");
    const ComponentSpec& mlp = loader_.require(ComponentKind::connector, "mlp", {}, "model.connectors.image");
    const ComponentSpec& llama = loader_.require(ComponentKind::backbone, "llama", {}, "model.backbone");
    const auto [bound_encoder, encoder] =
        bind("encoders.image", [&](Declarer d) { return vit.encoder(config(vit, v.vit), d); });
    const auto [bound_backbone, backbone] =
        bind("backbone", [&](Declarer d) { return llama.backbone(config(llama, v.llama), BackboneArgs{kVocab}, d); });
    const ConnectorArgs widths{encoder->width(), backbone->width()};
    parts.encoders["image"] = bound_encoder;
    parts.backbone = bound_backbone;
    parts.connectors["image"] =
        bind("connectors.image", [&](Declarer d) { return mlp.connector(config(mlp, v.mlp), widths, d); }).first;
    auto model = std::make_unique<MultimodalModel>(std::move(parts), 5);
    model->init_weights(5);
    return model;
  }

  // A Python that can import torch; the LibTorch of this process comes from such a package more often than not.
  std::string find_python() {
    std::string site;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t end = line.find("/torch/lib/libtorch_cpu.so");
      if (end != std::string::npos) site = line.substr(line.find('/'), end - line.find('/'));
    }
    std::vector<std::string> pythons{std::string(test::kSourceDir) + "/.deps/venv/bin/python", "python3"};
    if (const char* given = std::getenv("OMNILOOM_PYTHON")) pythons.insert(pythons.begin(), given);
    for (const std::string& python : pythons) {
      for (const std::string& prefix : {std::string(), "PYTHONPATH='" + site + "' "}) {
        const std::string command = "OMP_NUM_THREADS=1 " + prefix + "'" + python + "'";
        if (std::system((command + " -c 'import torch' >/dev/null 2>&1").c_str()) == 0) return command;
      }
    }
    return "";
  }

  Json run_reference(const std::string& python, const Json& job) {
    write_file_atomic(folder_ + "/job.json", job.dump());
    const std::string command = python + " '" + test::kSourceDir + "/tests/reference/reference.py' '" + folder_ +
                                "/job.json' >'" + folder_ + "/out.json' 2>'" + folder_ + "/errors.txt'";
    const int status = std::system(command.c_str());
    EXPECT_EQ(status, 0) << read_text(folder_ + "/errors.txt");
    return status == 0 ? Json::parse(read_text(folder_ + "/out.json")) : Json();
  }

  // Trains here and there; returns the largest difference of the losses.
  double compare(const Variant& v, at::ScalarType dtype, const std::string& python) {
    const std::unique_ptr<MultimodalModel> model = make_model(v, dtype);
    std::vector<NamedTensor> weights;
    for (UnitBuffer* buffer : model->buffers()) {
      for (size_t e = 0; e < buffer->entries().size(); ++e)
        weights.push_back({buffer->entries()[e].name, buffer->master_of(e)});
    }
    OptimizerConfig config;
    config.beta2 = 0.95;
    config.groups.weight_decay = 0.1;
    TrainerOptions options;
    options.schedule = {5e-3, 5, kSteps, "cosine", 0.1};
    options.clip = kClip;
    Batches batches(model->encoder("image"), model->merge("image"));
    Json job = {
        {"dtype", dtype == at::kDouble ? "float64" : "float32"}, {"vit", v.vit}, {"mlp", v.mlp}, {"llama", v.llama}};
    job["checkpoint"] = save_checkpoint(folder_, 1, weights);
    job["media"] = folder_ + "/media.safetensors";
    job["optimizer"] = {{"beta1", config.beta1},
                        {"beta2", config.beta2},
                        {"eps", config.eps},
                        {"weight_decay", config.groups.weight_decay}};
    job["schedule"] = {{"lr", options.schedule.lr},
                       {"warmup", options.schedule.warmup},
                       {"steps", kSteps},
                       {"min_ratio", options.schedule.min_ratio}};
    job["clip"] = kClip;

    const std::unique_ptr<Optimizer> optimizer = make_optimizer(config, model->buffers());
    Trainer trainer(*model, *optimizer, options);
    std::vector<StepStats> ours;
    for (int64_t step = 1; step <= kSteps; ++step) {
      const LoadedStep loaded = batches.step(step);
      job["batches"].push_back(batches.json_of(loaded));
      ours.push_back(trainer.step(loaded));
    }
    check_coverage(ours);
    write_safetensors(folder_ + "/media.safetensors", batches.media);
    const Json theirs = run_reference(python, job);
    if (theirs.is_null()) return std::nan("");
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const double loss = theirs["loss"][i].get<double>(), norm = theirs["grad_norm"][i].get<double>();
      worst = std::max(worst, std::abs(ours[i].loss - loss));
      if (dtype == at::kDouble) {
        EXPECT_NEAR(ours[i].loss, loss, 1e-9) << "step " << i + 1;
        EXPECT_NEAR(ours[i].grad_norm, norm, 1e-9 * std::max(1.0, norm)) << "step " << i + 1;
      }
      EXPECT_DOUBLE_EQ(ours[i].lr, theirs["lr"][i].get<double>());
    }
    return worst;
  }

  // The comparison is worth what it covers: learning, clipping on and off, several microbatches, uneven supervision.
  static void check_coverage(const std::vector<StepStats>& steps) {
    int64_t clipped = 0, split = 0, fewest = steps[0].supervised, most = 0;
    for (const StepStats& s : steps) {
      clipped += s.grad_norm > kClip ? 1 : 0;
      split += s.microbatches > 1 ? 1 : 0;
      fewest = std::min(fewest, s.supervised);
      most = std::max(most, s.supervised);
    }
    EXPECT_LT(steps.back().loss, 0.75 * steps.front().loss);
    EXPECT_GT(clipped, 5);
    EXPECT_LT(clipped, 45);
    EXPECT_GT(split, 25);
    EXPECT_GT(most, 2 * fewest);
  }

  std::string folder_;
  Registry registry_;
  PluginLoader loader_;
};

TEST_F(ReferenceTest, FiftyStepsEqualPyTorch) {
  const std::string python = find_python();
  if (python.empty()) GTEST_SKIP() << "no Python with torch: tried $OMNILOOM_PYTHON, .deps/venv/bin/python and python3";
  for (const bool qwen_like : {false, true}) {
    const double worst = compare(variant(qwen_like), at::kDouble, python);
    std::printf("float64, %s: largest difference of 50 losses %.3g\n",
                qwen_like ? "q/k norm, biases, separate head" : "tied head", worst);
    EXPECT_LE(worst, 1e-9);
  }
  const double single = compare(variant(false), at::kFloat, python);
  std::printf("float32: largest difference of 50 losses %.3g\n", single);
  EXPECT_LT(single, 0.05);
}

}  // namespace
}  // namespace loom
