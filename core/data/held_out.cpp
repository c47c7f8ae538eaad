// Only the list of held samples is stored; the others are counted around it.
#include "core/data/held_out.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/random.h"

namespace loom {
namespace {

using Indices = std::shared_ptr<const std::vector<int64_t>>;  // sorted

class PartSource : public Source {
 public:
  PartSource(std::shared_ptr<Source> whole, Indices held, bool takes_held)
      : whole_(std::move(whole)), held_(std::move(held)), takes_held_(takes_held) {}

  int64_t size() const override {
    const int64_t held = static_cast<int64_t>(held_->size());
    return takes_held_ ? held : whole_->size() - held;
  }
  const std::string& name() const override { return whole_->name(); }
  RawSample read(int64_t index) const override { return whole_->read(place(index)); }
  RawSample read_without_media(int64_t index) const override { return whole_->read_without_media(place(index)); }
  std::vector<std::string> modalities() const override { return whole_->modalities(); }
  double weight() const override { return whole_->weight(); }
  uint64_t sample_key(int64_t index) const override { return whole_->sample_key(place(index)); }
  std::string sample_name(int64_t index) const override { return whole_->sample_name(place(index)); }
  uint64_t sample_identity(int64_t index) const override { return whole_->sample_identity(place(index)); }

 private:
  // Sample `index` of this part is which one of the whole?
  int64_t place(int64_t index) const {
    LOOM_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
    const std::vector<int64_t>& held = *held_;
    if (takes_held_) return held[static_cast<size_t>(index)];
    // Before held[j] lie held[j] - j others, a number that never falls.
    size_t low = 0, high = held.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (held[middle] - static_cast<int64_t>(middle) <= index) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return index + static_cast<int64_t>(low);
  }

  std::shared_ptr<Source> whole_;
  Indices held_;
  bool takes_held_;
};

}  // namespace

DividedSource hold_out(std::shared_ptr<Source> source, double share) {
  LOOM_CHECK(share > 0 && share < 1, "share ", share);
  const int64_t size = source->size();
  if (size < 2) return {std::move(source), nullptr};
  const uint64_t salt = hash_name("data.hold_out");
  std::vector<int64_t> held;
  std::pair<uint64_t, int64_t> least{UINT64_MAX, 0}, most{0, 0};  // (draw, index)
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t draw = mix_hash(source->sample_identity(i), salt);
    least = std::min(least, {draw, i});
    most = std::max(most, {draw, i});
    if (static_cast<double>(draw >> 11) * 0x1p-53 < share) held.push_back(i);
  }
  if (held.empty()) held.push_back(least.second);
  if (static_cast<int64_t>(held.size()) == size) held.erase(held.begin() + most.second);
  const Indices indices = std::make_shared<const std::vector<int64_t>>(std::move(held));
  return {std::make_shared<PartSource>(source, indices, false), std::make_shared<PartSource>(source, indices, true)};
}

}  // namespace loom
