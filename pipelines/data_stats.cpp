#include "pipelines/data_stats.h"

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/observe/progress.h"
#include "core/step/pack_samples.h"
#include "pipelines/report_skips.h"

namespace loom {
namespace {

constexpr size_t kExamples = 3;

template <class Value>
const Value& at_share(const std::vector<Value>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(place + 0.5)];
}

}  // namespace

CheckedSample check_sample(const Preparer& preparer, const Source& source, int64_t index) {
  CheckedSample out;
  try {
    RawSample raw;
    const PreparedSample sample = preparer.prepare(source, index, 0, 0, &raw);
    out.ok = sample.verdict.ok;
    out.left_out = sample.left_out;
    out.name = sample.verdict.name;
    out.reason = sample.verdict.reason;
    out.tokens = sample.verdict.tokens;
    out.supervised = sample.verdict.supervised;
    for (const SamplePart& part : raw.parts) {
      if (part.kind == SamplePart::Kind::media && part.media.data.dim() == 4)
        out.pictures.emplace_back(part.media.info.height, part.media.info.width);
    }
  } catch (const UserError& problem) {
    out.stops = true;
    out.name = source.sample_name(index);
    out.reason = problem.what();
  }
  return out;
}

void SourceStats::add(const CheckedSample& sample) {
  tokens_.push_back(sample.ok ? sample.tokens : 0);
  pictures_.insert(pictures_.end(), sample.pictures.begin(), sample.pictures.end());
  if (sample.ok) {
    ++usable_;
    all_tokens_ += sample.tokens;
    supervised_ += sample.supervised;
    return;
  }
  ++(sample.left_out ? left_out_ : skipped_);
  stopping_ += sample.stops ? 1 : 0;
  const std::string kind = skip_kind(sample.reason);
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const SkipGroup& other) {
    return other.kind == kind && other.left_out == sample.left_out && other.stops == sample.stops;
  });
  if (group == groups_.end()) {
    SkipGroup& made = groups_.emplace_back();
    made.kind = kind;
    made.left_out = sample.left_out;
    made.stops = sample.stops;
    group = groups_.end() - 1;
  }
  ++group->count;
  if (group->examples.size() < kExamples) {
    const bool named = sample.reason.rfind(sample.name, 0) == 0;
    group->examples.push_back(named ? sample.reason : sample.name + ": " + sample.reason);
  }
}

std::string SourceStats::tokens_text() const {
  std::vector<int64_t> sorted;
  for (const int64_t count : tokens_) {
    if (count > 0) sorted.push_back(count);
  }
  if (sorted.empty()) return "none";
  std::sort(sorted.begin(), sorted.end());
  return concat(with_commas(sorted.front()), " min · ", with_commas(at_share(sorted, 0.5)), " median · ",
                with_commas(at_share(sorted, 0.95)), " p95 · ", with_commas(sorted.back()), " max · ",
                with_commas(all_tokens_), " in all");
}

std::string SourceStats::pictures_text() const {
  if (pictures_.empty()) return "";
  auto sorted = pictures_;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first * a.second < b.first * b.second; });
  const auto size = [](const auto& picture) { return concat(picture.second, "x", picture.first); };
  const std::string count = with_commas(static_cast<int64_t>(sorted.size()));
  if (sorted.front() == sorted.back()) return concat(count, " · all ", size(sorted.front()));
  return concat(count, " · ", size(sorted.front()), " smallest · ", size(at_share(sorted, 0.5)), " median · ",
                size(sorted.back()), " largest");
}

std::string SourceStats::supervised_text() const {
  if (all_tokens_ == 0) return "none";
  return percent_text(static_cast<double>(supervised_) / static_cast<double>(all_tokens_)) + " of tokens";
}

EpochPlan plan_epoch(const SampleOrder& order, const BatchSize& batch, int64_t budget,
                     const std::function<int64_t(int source, int64_t index)>& tokens) {
  EpochPlan out;
  std::vector<Verdict> step;
  int64_t filled = 0;
  const auto close = [&](double share) {
    if (step.empty()) return;
    out.packs += static_cast<int64_t>(pack_samples(step, budget).size());
    out.steps += share;
    step.clear();
    filled = 0;
  };
  const bool by_tokens = batch.unit == BatchSize::Unit::tokens;
  for (int64_t position = 0; position < order.epoch_size(); ++position) {
    const SamplePlace place = order.at(static_cast<uint64_t>(position));
    Verdict verdict;
    verdict.tokens = tokens(place.source, place.index);
    if (verdict.tokens == 0) continue;
    const int64_t size = by_tokens ? verdict.tokens : 1;
    if (filled + size > batch.count) close(1);
    filled += size;
    ++out.samples;
    out.tokens += verdict.tokens;
    step.push_back(std::move(verdict));
    if (filled >= batch.count) close(1);
  }
  close(static_cast<double>(filled) / static_cast<double>(batch.count));
  return out;
}

}  // namespace loom
