// A window of samples in preparation, consumed from its front by the caller's thread alone. There is no second thread
// that packs: taking verdicts in order costs microseconds, and one thread makes the state exact.
#include "core/data/loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

constexpr int64_t kSkipsJudgedFrom = 100;  // samples
constexpr size_t kSkipsNamed = 3;

SampleOrder make_order(const std::vector<std::shared_ptr<Source>>& sources, const LoaderOptions& options) {
  std::vector<OrderSource> out;
  for (const std::shared_ptr<Source>& source : sources)
    out.push_back({source->name(), source->size(), source->weight()});
  return SampleOrder(std::move(out), options.seed, options.shuffle, options.mix);
}

std::vector<std::string> names_of(const std::vector<std::shared_ptr<Source>>& sources) {
  std::vector<std::string> out;
  for (const std::shared_ptr<Source>& source : sources) out.push_back(source->name());
  return out;
}

int64_t bytes_of(const PreparedSample& sample) {
  int64_t bytes = static_cast<int64_t>(sizeof(PreparedSample) + sample.tokens.size() * 9);
  for (const Tensor& media : sample.media) bytes += static_cast<int64_t>(media.nbytes());
  return bytes;
}

std::string percent(double share) { return concat(std::round(share * 1000) / 10, " %"); }

}  // namespace

std::string BatchSize::str() const { return concat(count, unit == Unit::samples ? " samples" : " tokens"); }

BatchSize parse_batch(const ConfigValue& value) {
  const std::string text = value.text();
  const auto refuse = [&](const std::string& hint) {
    throw UserError(concat(said_at(value), "expected '64 samples' or '262144 tokens', found ", value.found(), hint));
  };
  std::vector<std::string> words;
  for (const std::string& word : split(trim(text), ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  if (words.empty() || words.size() > 2 || value.is_map() || value.is_list()) refuse("");
  std::string digits = words[0];
  digits.erase(std::remove_if(digits.begin(), digits.end(), [](char c) { return c == ',' || c == '_'; }), digits.end());
  if (digits.empty() || digits.size() > 15 || digits.find_first_not_of("0123456789") != std::string::npos) refuse("");
  BatchSize out;
  out.count = std::stoll(digits);
  if (out.count == 0) refuse("; at least 1 is needed");
  if (words.size() == 1 || words[1] == "samples" || words[1] == "sample") return out;
  out.unit = BatchSize::Unit::tokens;
  if (words[1] != "tokens" && words[1] != "token") refuse(did_you_mean(words[1], {"samples", "tokens"}));
  return out;
}

StepLoader::StepLoader(std::vector<std::shared_ptr<Source>> sources, const Preparer& preparer, ThreadPool& pool,
                       LoaderOptions options)
    : sources_(std::move(sources)),
      preparer_(preparer),
      pool_(pool),
      options_(std::move(options)),
      order_(make_order(sources_, options_)),
      journal_(options_.journal),
      mix_journal_(options_.mix_journal, names_of(sources_)) {
  for (const std::shared_ptr<Source>& source : sources_) preparer_.check_source(*source);
  current_.sources = order_.sources();
  current_.seed = options_.seed;
  current_.shuffle = options_.shuffle;
  current_.mix = options_.mix;
  for (const MixSegment& change : mix_journal_.changes()) order_.change(change);
  count_epochs(current_);
  committed_ = current_;
  samples_per_step_ = options_.batch.unit == BatchSize::Unit::samples ? options_.batch.count : 64;
}

StepLoader::~StepLoader() { discard(); }

void StepLoader::discard() {
  shared_->stop = true;
  for (Waiting& waiting : window_) {
    if (!waiting.task.valid()) continue;
    try {
      waiting.task.get();
    } catch (...) {  // nobody wants the result any more, so nobody is told
    }
  }
  window_.clear();
  shared_ = std::make_shared<Shared>();
}

void StepLoader::restore(const LoaderState& state) {
  check_same_order(state, order_);
  discard();
  order_ = make_order(sources_, options_);
  for (const MixSegment& change : state.changes) order_.change(change);
  for (const MixSegment& change : mix_journal_.changes()) {
    if (change.begin >= state.position) order_.change(change);
  }
  current_ = state;
  count_epochs(current_);
  committed_ = current_;
  unusable_in_a_row_ = 0;
}

std::optional<uint64_t> StepLoader::change_mix(const std::vector<double>& weights, const std::string& id) {
  if (mix_journal_.knows(id)) return std::nullopt;
  const MixSegment change{current_.position, weights};
  mix_journal_.add({change, current_.next_step, id});
  discard();
  order_.change(change);
  return change.begin;
}

void StepLoader::fill() {
  const int64_t ahead = std::max<int64_t>({1, pool_.size(), samples_per_step_ * options_.prefetch_steps});
  while (static_cast<int64_t>(window_.size()) < ahead) {
    if (!window_.empty() && shared_->bytes > options_.prefetch_bytes) return;
    Waiting waiting;
    waiting.position = current_.position + window_.size();
    const SamplePlace place = order_.at(waiting.position);
    const std::shared_ptr<Source> source = sources_[static_cast<size_t>(place.source)];
    const uint64_t key = source->sample_key(place.index);
    if (const SkipRecord* known = journal_.find(waiting.position, key)) {
      PreparedSample& skipped = waiting.ready.emplace();
      skipped.left_out = known->left_out;
      skipped.verdict.ok = false;
      skipped.verdict.position = waiting.position;
      skipped.verdict.sample = key;
      skipped.verdict.name = known->name;
      skipped.verdict.reason = known->reason;
      shared_->bytes += bytes_of(skipped);
    } else {
      const Preparer* preparer = &preparer_;
      const uint64_t position = waiting.position;
      waiting.task = pool_.submit([source, preparer, place, position, shared = shared_] {
        PreparedSample out;
        if (!shared->stop) out = preparer->prepare(*source, place.index, position, place.epoch);
        shared->bytes += bytes_of(out);
        return out;
      });
    }
    window_.push_back(std::move(waiting));
  }
}

PreparedSample& StepLoader::front() {
  fill();
  Waiting& first = window_.front();
  if (!first.ready.has_value()) first.ready.emplace(first.task.get());
  return *first.ready;
}

void StepLoader::pop_front() {
  window_.pop_front();
  ++current_.position;
  ++current_.seen;
}

void StepLoader::note_skip(const PreparedSample& sample) {
  const Verdict& verdict = sample.verdict;
  journal_.add({verdict.position, verdict.sample, current_.next_step, verdict.name, verdict.reason, sample.left_out});
  ++(sample.left_out ? current_.left_out : current_.skipped);
  ++unusable_in_a_row_;
}

void StepLoader::check_skip_rate() const {
  const bool too_many =
      current_.seen >= kSkipsJudgedFrom &&
      static_cast<double>(current_.skipped) > options_.max_skip_rate * static_cast<double>(current_.seen);
  const bool nothing_left = unusable_in_a_row_ >= std::max(kSkipsJudgedFrom, order_.epoch_size());
  if (!too_many && !nothing_left) return;
  std::string first;
  const std::vector<SkipRecord> known = journal_.before(current_.position);
  for (size_t i = 0; i < std::min(known.size(), kSkipsNamed); ++i)
    first += concat("; ", known[i].name, ": ", known[i].reason);
  if (known.size() > kSkipsNamed) first += "; ...";
  if (!options_.journal.empty()) first += concat("; all of them: ", options_.journal);
  if (nothing_left) throw UserError(concat("none of the last ", unusable_in_a_row_, " samples can be used", first));
  throw UserError(concat(current_.skipped, " of ", current_.seen, " samples were skipped (",
                         percent(static_cast<double>(current_.skipped) / static_cast<double>(current_.seen)),
                         "), more than data.max_skip_rate = ", options_.max_skip_rate, first));
}

LoadedStep StepLoader::next() {
  try {
    LoadedStep out = collect();
    committed_ = current_;
    fill();
    return out;
  } catch (...) {
    // As if the step had never been asked for.
    discard();
    current_ = committed_;
    throw;
  }
}

LoadedStep StepLoader::collect() {
  const bool by_tokens = options_.batch.unit == BatchSize::Unit::tokens;
  LoadedStep out;
  std::vector<Verdict> verdicts;
  int64_t filled = 0;
  while (filled < options_.batch.count) {
    PreparedSample& sample = front();
    if (!sample.verdict.ok) {
      note_skip(sample);
      shared_->bytes -= bytes_of(sample);
      pop_front();
      check_skip_rate();
      continue;
    }
    const int64_t size = by_tokens ? sample.verdict.tokens : 1;
    if (!verdicts.empty() && filled + size > options_.batch.count) break;  // it stays in front, for the next step
    filled += size;
    unusable_in_a_row_ = 0;
    shared_->bytes -= bytes_of(sample);
    verdicts.push_back(sample.verdict);
    out.samples.push_back(std::move(sample));
    pop_front();
    check_skip_rate();
  }
  samples_per_step_ = static_cast<int64_t>(out.samples.size());
  out.plan = make_step_plan(current_.next_step, std::move(verdicts), preparer_.options().budget, current_.position,
                            options_.layout);
  ++current_.next_step;
  current_.changes.clear();
  for (const MixSegment& change : order_.changes()) {
    if (change.begin < current_.position) current_.changes.push_back(change);
  }
  count_epochs(current_);
  out.after = current_;
  return out;
}

void StepLoader::count_epochs(LoaderState& state) const {
  state.epochs.clear();
  for (size_t s = 0; s < sources_.size(); ++s)
    state.epochs[order_.sources()[s].name] = order_.epoch_of(static_cast<int>(s), state.position);
}

}  // namespace loom
