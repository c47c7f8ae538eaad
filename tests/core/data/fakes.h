#pragma once
// A source and an encoder small enough to know everything about: what a sample holds is a function of its index.
#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <set>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/data/preparer.h"
#include "core/data/source.h"
#include "core/model/component.h"

namespace loom::test {

inline constexpr int64_t kFakeMediaWidth = 2;

// Rows are the pixels of a picture: (value, position). Behaviour is changed by setting members.
class FakeEncoder : public Encoder {
 public:
  void run(int, Streams&, UnitContext&) override { throw InternalError("a fake is not run"); }
  int64_t width() const override { return 4; }
  int64_t media_width() const override { return kFakeMediaWidth; }
  ItemMeta measure(const MediaInfo& info) const override {
    LOOM_CHECK_USER(info.height <= 40, "a picture of ", info.height, " rows is refused\nsecond line");
    return {info.height * info.width, info.height * info.width, 1, {info.height, info.width}};
  }
  ItemLayout layout(const ItemMeta& meta) const override {
    ItemLayout out = whole_item(meta.tokens);
    if (!windows) return out;
    ItemPartition& rows = out.partitions["rows"];  // one segment per picture row, with (y, x)
    rows.position_axes = 2;
    for (int64_t y = 0; y < meta.grid[0]; ++y) {
      rows.lengths.push_back(meta.grid[1]);
      for (int64_t x = 0; x < meta.grid[1]; ++x) rows.positions.insert(rows.positions.end(), {y, x});
    }
    for (int64_t i = 0; i < meta.outputs; ++i) out.permutation.push_back(meta.outputs - 1 - i);
    return out;
  }
  Tensor prepare(const Media& media, const Philox& random) const override {
    if (fail) fail(media);
    const Tensor values = media.data.reshape({-1}).to(at::kFloat);
    Tensor rows = at::stack({values, at::arange(values.size(0), at::kFloat)}, 1);
    if (noise) rows.select(1, 1).fill_(random.uniform(0));
    return rows;
  }

  bool windows = false, noise = false;
  std::function<void(const Media&)> fail;
};

inline Media fake_picture(int64_t height, int64_t width, int64_t value, const std::string& modality = "image") {
  Media media;
  media.info.modality = modality;
  media.info.height = height;
  media.info.width = width;
  media.info.channels = 1;
  media.data = at::full({1, height, width, 1}, value % 251, at::kByte);
  return media;
}

class FakeSource : public Source {
 public:
  using Make = std::function<RawSample(int64_t)>;
  FakeSource(std::string name, int64_t size) : name_(std::move(name)), size_(size) {}
  int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  double weight() const override { return given_weight; }
  RawSample read(int64_t index) const override {
    // Delays by index and round of the test, so that tasks finish in another order each time.
    if (delay_seed != 0) {
      const Philox random(RandomKey{.seed = delay_seed});
      std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000, static_cast<uint64_t>(index))));
    }
    if (broken.count(index) > 0) throw std::runtime_error("cannot decode it\nwith details");
    RawSample out;
    out.key = sample_key(index);
    out.name = sample_name(index);
    out.parts.push_back(SamplePart::make_media(fake_picture(1, 1 + index % 4, index)));
    out.parts.push_back(SamplePart::make_text(std::string(static_cast<size_t>(3 + index % 11), 'a'), true));
    return out;
  }

  double given_weight = 0;
  uint64_t delay_seed = 0;
  std::set<int64_t> broken;

 private:
  std::string name_;
  int64_t size_;
};

// An encoder, a tokenizer and a preparer over them.
struct FakeKit {
  explicit FakeKit(int64_t budget = 64, OverLong over_long = OverLong::error, int64_t merge = 1)
      : tokenizer(make_tokenizer(ConfigValue::string("bytes"))),
        preparer(PreparerOptions{{{"image", {&encoder, merge}}}, tokenizer.get(), budget, over_long, 5}) {}
  FakeEncoder encoder;
  std::unique_ptr<Tokenizer> tokenizer;
  Preparer preparer;
};

}  // namespace loom::test
