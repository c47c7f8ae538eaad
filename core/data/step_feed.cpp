// One broadcast of metadata per step, then one message per rank with the contents it needs. A rank that needs any part
// of a sample gets all of it: simple, and wasteful only where a sample's text and its items lie on different ranks.
#include "core/data/step_feed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "core/base/error.h"
#include "core/data/wire.h"

namespace loom {
namespace {

std::vector<std::vector<int>> ranks_of_samples(const StepPlan& plan) {
  std::vector<std::set<int>> ranks(plan.samples.size());
  const auto add = [&](int64_t sample, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      if (piece.rows > 0) ranks.at(static_cast<size_t>(sample)).insert(piece.rank);
    }
  };
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const PlacedSample& placed : microbatch.samples) add(placed.sample, placed.pieces);
    for (const auto& [modality, items] : microbatch.items) {
      for (const PlacedItem& placed : items) add(placed.sample, placed.pieces);
    }
  }
  std::vector<std::vector<int>> out;
  for (const std::set<int>& some : ranks) out.emplace_back(some.begin(), some.end());
  return out;
}

std::vector<size_t> samples_for(const std::vector<std::vector<int>>& ranks, int rank) {
  std::vector<size_t> out;
  for (size_t s = 0; s < ranks.size(); ++s) {
    if (std::binary_search(ranks[s].begin(), ranks[s].end(), rank)) out.push_back(s);
  }
  return out;
}

// Contents of a sample in a message: tokens, supervision, then media.
int64_t content_bytes(const Verdict& verdict, const std::vector<int64_t>& widths) {
  int64_t bytes = verdict.tokens * static_cast<int64_t>(sizeof(int64_t) + 1);
  for (size_t i = 0; i < widths.size(); ++i)
    bytes += verdict.items[i].meta.tokens * widths[i] * static_cast<int64_t>(sizeof(float));
  return bytes;
}

char* put(char* at, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(at, from, bytes);
  return at + bytes;
}

char* write_contents(const PreparedSample& sample, char* at) {
  LOOM_CHECK(static_cast<int64_t>(sample.tokens.size()) == sample.verdict.tokens &&
                 sample.supervised.size() == sample.tokens.size(),
             sample.verdict.name, " has ", sample.tokens.size(), " of ", sample.verdict.tokens, " tokens");
  at = put(at, sample.tokens.data(), sample.tokens.size() * sizeof(int64_t));
  at = put(at, sample.supervised.data(), sample.supervised.size());
  for (const Tensor& media : sample.media) {
    const Tensor rows = media.contiguous();
    LOOM_CHECK(rows.scalar_type() == at::kFloat, "media of ", sample.verdict.name, " are ", rows.scalar_type());
    at = put(at, rows.const_data_ptr<float>(), rows.nbytes());
  }
  return at;
}

const char* get(const char* at, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, at, bytes);
  return at + bytes;
}

const char* read_contents(const char* at, const std::vector<int64_t>& widths, PreparedSample& sample) {
  const size_t tokens = static_cast<size_t>(sample.verdict.tokens);
  sample.tokens.resize(tokens);
  sample.supervised.resize(tokens);
  at = get(at, sample.tokens.data(), tokens * sizeof(int64_t));
  at = get(at, sample.supervised.data(), tokens);
  for (size_t i = 0; i < widths.size(); ++i) {
    Tensor rows = at::empty({sample.verdict.items[i].meta.tokens, widths[i]}, at::kFloat);
    at = get(at, rows.mutable_data_ptr<float>(), rows.nbytes());
    sample.media.push_back(std::move(rows));
  }
  return at;
}

std::vector<int64_t> media_widths(const PreparedSample& sample) {
  std::vector<int64_t> out;
  for (const Tensor& media : sample.media) out.push_back(media.size(1));
  return out;
}

std::string write_header(const LoadedStep& step) {
  ByteWriter out;
  out.integer(step.plan.step);
  out.number(step.plan.next_position);
  out.text(step.after.json());
  out.number(step.samples.size());
  for (size_t s = 0; s < step.samples.size(); ++s) {
    LOOM_CHECK(step.samples[s].media.size() == step.plan.samples[s].items.size(), step.plan.samples[s].name, " has ",
               step.samples[s].media.size(), " media of ", step.plan.samples[s].items.size());
    write_verdict(step.plan.samples[s], out);
    out.integers(media_widths(step.samples[s]));
  }
  return out.take();
}

}  // namespace

std::vector<int> ranks_of_sample(const StepPlan& plan, size_t sample) { return ranks_of_samples(plan).at(sample); }

StepFeed::StepFeed(Communicator& comm, StepLoader* loader, int64_t budget, WorldLayout layout)
    : comm_(comm), loader_(loader), budget_(budget), layout_(std::move(layout)) {
  LOOM_CHECK((comm_.rank() == 0) == (loader_ != nullptr), "rank ", comm_.rank(),
             loader_ == nullptr ? " has no loader" : " has a loader");
  LOOM_CHECK(layout_.world == comm_.world(), "a layout of ", layout_.world, " ranks on ", comm_.world());
  LOOM_CHECK(loader_ == nullptr || loader_->options().layout == layout_, "the loader plans for another layout");
}

LoadedStep StepFeed::next() {
  if (comm_.world() == 1) return loader_->next();
  LoadedStep step;
  std::string header;
  if (loader_ != nullptr) {
    step = loader_->next();
    LOOM_CHECK(step.plan.budget == budget_, "a plan with budget ", step.plan.budget, "; expected ", budget_);
    header = write_header(step);
  }
  header = comm_.broadcast("data feed: verdicts", world_group(comm_.world()), 0, header);

  std::vector<std::vector<int64_t>> widths;
  if (loader_ != nullptr) {
    for (const PreparedSample& sample : step.samples) widths.push_back(media_widths(sample));
  } else {
    ByteReader in(header);
    const int64_t number = in.integer();
    const uint64_t next_position = in.number();
    step.after = parse_loader_state(in.text(), "data feed");
    std::vector<Verdict> verdicts;
    for (uint64_t count = in.number(); count > 0; --count) {
      verdicts.push_back(read_verdict(in));
      widths.push_back(in.integers());
      step.samples.emplace_back().verdict = verdicts.back();
    }
    step.plan = make_step_plan(number, std::move(verdicts), budget_, next_position, layout_);
  }

  const std::vector<std::vector<int>> ranks = ranks_of_samples(step.plan);
  const auto bytes_for = [&](const std::vector<size_t>& some) {
    int64_t bytes = 0;
    for (const size_t s : some) bytes += content_bytes(step.plan.samples[s], widths[s]);
    return bytes;
  };
  std::vector<Message> sends, receives;
  if (loader_ != nullptr) {
    for (int rank = 1; rank < comm_.world(); ++rank) {
      const std::vector<size_t> some = samples_for(ranks, rank);
      if (some.empty()) continue;
      const Tensor bytes = at::empty({bytes_for(some)}, at::kByte);
      char* at = reinterpret_cast<char*>(bytes.mutable_data_ptr<uint8_t>());
      for (const size_t s : some) at = write_contents(step.samples[s], at);
      sends.push_back({rank, bytes});
    }
    comm_.exchange("data feed: contents", sends, receives).wait();
    // What lies elsewhere is not kept, so that rank 0 is a rank like the others.
    for (size_t s = 0; s < step.samples.size(); ++s) {
      if (std::binary_search(ranks[s].begin(), ranks[s].end(), 0)) continue;
      step.samples[s].tokens.clear();
      step.samples[s].supervised.clear();
      step.samples[s].media.clear();
    }
    return step;
  }
  const std::vector<size_t> some = samples_for(ranks, comm_.rank());
  if (some.empty()) return step;
  const Tensor bytes = at::empty({bytes_for(some)}, at::kByte);
  receives.push_back({0, bytes});
  comm_.exchange("data feed: contents", sends, receives).wait();
  const char* at = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  for (const size_t s : some) at = read_contents(at, widths[s], step.samples[s]);
  return step;
}

}  // namespace loom
