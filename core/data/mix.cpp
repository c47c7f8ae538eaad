#include "core/data/mix.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace loom {
namespace {

// Weights mean their shares: a ramp between 1:1 and 30:10 is one between a half and three quarters.
std::vector<double> shares_of(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  LOOM_CHECK(sum > 0, "a mix of nothing");
  std::vector<double> out;
  for (const double weight : weights) out.push_back(weight / sum);
  return out;
}

}  // namespace

std::vector<MixSegment> mix_segments(const std::vector<MixStage>& stages) {
  std::vector<MixSegment> out;
  uint64_t begin = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const MixStage& stage = stages[s];
    if (!stage.ramp) {
      out.push_back({begin, stage.weights});
    } else {
      LOOM_CHECK(s + 1 < stages.size() && stage.until > begin, "a ramp that leads nowhere");
      const std::vector<double> from = shares_of(stage.weights), to = shares_of(stages[s + 1].weights);
      const uint64_t length = stage.until - begin, pieces = std::min(kRampPieces, length);
      for (uint64_t piece = 0; piece < pieces; ++piece) {
        const double t = (static_cast<double>(piece) + 0.5) / static_cast<double>(pieces);
        MixSegment segment{begin + length / pieces * piece + length % pieces * piece / pieces, {}};
        for (size_t i = 0; i < from.size(); ++i) segment.weights.push_back((1 - t) * from[i] + t * to[i]);
        out.push_back(std::move(segment));
      }
    }
    begin = stage.until;
  }
  return out;
}

void change_mix(std::vector<MixSegment>& segments, MixSegment change) {
  while (!segments.empty() && segments.back().begin >= change.begin) segments.pop_back();
  segments.push_back(std::move(change));
}

bool operator==(const MixSegment& a, const MixSegment& b) { return a.begin == b.begin && a.weights == b.weights; }

}  // namespace loom
