#include "tests/loopback/zoo/window_encoder.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace loom::test {
namespace {

constexpr int64_t kHigh = 2, kWide = 3, kSide = 16;
constexpr int kBlocks = 3;  // windows, whole, windows

const char* partition_of(int block) { return block % 2 == 0 ? "windows" : ""; }

}  // namespace

WindowEncoder::WindowEncoder(const Declarer& d, const ZooOptions& options) : options_(options) {
  const StreamDecl hidden{"hidden", kZooFeatures, "", false}, out{"features", kZooFeatures, "", false};
  const Declarer e = d.unit({"embed", {{"media", kZooMedia, "", false}}, {hidden}, Mixes::none, true, {}});
  embed_ = std::make_unique<Linear>(e.child("patch"), kZooMedia, kZooFeatures);
  position_ = std::make_unique<PositionEmbedding>(e.child("position"), std::vector<int64_t>{kSide, kSide}, kZooFeatures,
                                                  "", Init::normal(0.3));
  for (int i = 0; i < kBlocks; ++i) {
    const Declarer b =
        d.unit({"block." + std::to_string(i), {hidden}, {i + 1 < kBlocks ? hidden : out}, Mixes::attention, true, {}});
    norms_.emplace_back(b.child("norm"), kZooFeatures);
    SelfAttentionOptions attention;
    attention.width = kZooFeatures;
    attention.heads = 2;
    attention.partition = partition_of(i);
    attentions_.emplace_back(b.child("attention"), attention);
    drops_.push_back(b.site("drop"));
  }
}

WindowEncoder::~WindowEncoder() = default;

void WindowEncoder::run(int unit, Streams& s, UnitContext& ctx) {
  if (unit == 0) return s.set("hidden", (*position_)((*embed_)(s["media"], ctx), ctx));
  const Tensor& x = s["hidden"];
  const size_t i = static_cast<size_t>(unit) - 1;
  const Tensor y = attentions_[i](norms_[i](x, ctx), ctx);
  const Tensor out = x + ctx.dropout(y, options_.dropout, drops_[i], partition_of(unit - 1));
  if (options_.balance) ctx.loss("windows", 0.1 * (y * y).sum(), Denominator::samples);
  s.set(unit < kBlocks ? "hidden" : "features", out);
}

ItemMeta WindowEncoder::measure(const MediaInfo& info) const {
  const int64_t n = info.height * info.width;
  return {n, n, static_cast<double>(n * n), {info.height, info.width}};
}

ItemLayout WindowEncoder::layout(const ItemMeta& meta) const {
  const int64_t height = meta.grid.at(0), width = meta.grid.at(1);
  ItemLayout layout;
  ItemPartition whole, windows;
  whole.lengths = {meta.tokens};
  for (int64_t top = 0; top < height; top += kHigh) {
    for (int64_t left = 0; left < width; left += kWide) {
      const int64_t bottom = std::min(top + kHigh, height), right = std::min(left + kWide, width);
      windows.lengths.push_back((bottom - top) * (right - left));
      for (int64_t y = top; y < bottom; ++y) {
        for (int64_t x = left; x < right; ++x) {
          layout.permutation.push_back(y * width + x);
          whole.positions.insert(whole.positions.end(), {y, x});
        }
      }
    }
  }
  whole.position_axes = windows.position_axes = 2;
  windows.positions = whole.positions;
  layout.partitions[""] = std::move(whole);
  layout.partitions["windows"] = std::move(windows);
  return layout;
}

Tensor WindowEncoder::prepare(const Media& media, const Philox&) const { return media.data; }

}  // namespace loom::test
