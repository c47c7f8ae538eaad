// One broadcast of metadata per step, then one message per rank with the contents it needs. A rank with rows of a
// sample's text gets all of the text, for the targets behind its piece; of items the rows that it encodes.
#include "core/data/step_feed.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/data/wire.h"

namespace loom {
namespace {

using Shares = std::vector<std::map<int, SampleShare>>;  // by sample, then by rank

Shares shares_of(const StepPlan& plan) {
  Shares out(plan.samples.size());
  const auto share_of = [&](int64_t sample, int rank) -> SampleShare& {
    SampleShare& share = out.at(static_cast<size_t>(sample))[rank];
    share.media.resize(plan.samples[static_cast<size_t>(sample)].items.size());
    return share;
  };
  for (const MicrobatchPlan& microbatch : plan.microbatches) {
    for (const PlacedSample& placed : microbatch.samples) {
      for (const Piece& piece : placed.pieces) {
        if (piece.rows > 0) share_of(placed.sample, piece.rank).text = true;
      }
    }
    for (const auto& [modality, items] : microbatch.items) {
      for (const PlacedItem& placed : items) {
        for (const Piece& piece : placed.pieces) {
          if (piece.rows == 0) continue;
          MediaRows& rows = share_of(placed.sample, piece.rank).media.at(static_cast<size_t>(placed.item));
          const int64_t end = rows.rows == 0 ? 0 : rows.begin + rows.rows;
          rows.begin = rows.rows == 0 ? piece.begin : std::min(rows.begin, piece.begin);
          rows.rows = std::max(end, piece.begin + piece.rows) - rows.begin;
        }
      }
    }
  }
  return out;
}

// By sample: what goes to a rank.
std::vector<std::pair<size_t, const SampleShare*>> shares_for(const Shares& shares, int rank) {
  std::vector<std::pair<size_t, const SampleShare*>> out;
  for (size_t s = 0; s < shares.size(); ++s) {
    const auto found = shares[s].find(rank);
    if (found != shares[s].end()) out.emplace_back(s, &found->second);
  }
  return out;
}

// Contents of a sample in a message: tokens, supervision, then media rows.
int64_t content_bytes(const Verdict& verdict, const SampleShare& share, const std::vector<int64_t>& widths) {
  int64_t bytes = share.text ? verdict.tokens * static_cast<int64_t>(sizeof(int64_t) + 1) : 0;
  for (size_t i = 0; i < widths.size(); ++i)
    bytes += share.media[i].rows * widths[i] * static_cast<int64_t>(sizeof(float));
  return bytes;
}

char* put(char* at, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(at, from, bytes);
  return at + bytes;
}

char* write_contents(const PreparedSample& sample, const SampleShare& share, char* at) {
  LOOM_CHECK(static_cast<int64_t>(sample.tokens.size()) == sample.verdict.tokens &&
                 sample.supervised.size() == sample.tokens.size(),
             sample.verdict.name, " has ", sample.tokens.size(), " of ", sample.verdict.tokens, " tokens");
  if (share.text) {
    at = put(at, sample.tokens.data(), sample.tokens.size() * sizeof(int64_t));
    at = put(at, sample.supervised.data(), sample.supervised.size());
  }
  for (size_t i = 0; i < sample.media.size(); ++i) {
    if (share.media[i].rows == 0) continue;
    const Tensor rows = sample.media[i].narrow(0, share.media[i].begin, share.media[i].rows).contiguous();
    LOOM_CHECK(rows.scalar_type() == at::kFloat, "media of ", sample.verdict.name, " are ", rows.scalar_type());
    at = put(at, rows.const_data_ptr<float>(), rows.nbytes());
  }
  return at;
}

const char* get(const char* at, void* to, size_t bytes) {
  if (bytes > 0) std::memcpy(to, at, bytes);
  return at + bytes;
}

const char* read_contents(const char* at, const SampleShare& share, const std::vector<int64_t>& widths,
                          PreparedSample& sample) {
  const size_t tokens = share.text ? static_cast<size_t>(sample.verdict.tokens) : 0;
  sample.tokens.resize(tokens);
  sample.supervised.resize(tokens);
  at = get(at, sample.tokens.data(), tokens * sizeof(int64_t));
  at = get(at, sample.supervised.data(), tokens);
  for (size_t i = 0; i < widths.size(); ++i) {
    sample.media_begin.push_back(share.media[i].begin);
    if (share.media[i].rows == 0) {
      sample.media.emplace_back();
      continue;
    }
    Tensor rows = at::empty({share.media[i].rows, widths[i]}, at::kFloat);
    at = get(at, rows.mutable_data_ptr<float>(), rows.nbytes());
    sample.media.push_back(std::move(rows));
  }
  return at;
}

// Leaves what this rank needs.
void keep(const SampleShare* share, PreparedSample& sample) {
  if (share == nullptr || !share->text) {
    sample.tokens.clear();
    sample.supervised.clear();
  }
  if (share == nullptr) {
    sample.media.clear();
    return;
  }
  for (size_t i = 0; i < sample.media.size(); ++i) {
    const MediaRows& rows = share->media[i];
    sample.media_begin.push_back(rows.begin);
    if (rows.rows == 0) {
      sample.media[i] = Tensor();
    } else if (rows.rows < sample.media[i].size(0)) {
      sample.media[i] = sample.media[i].narrow(0, rows.begin, rows.rows).clone();
    }
  }
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

std::map<int, SampleShare> shares_of_sample(const StepPlan& plan, size_t sample) { return shares_of(plan).at(sample); }

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

  const Shares shares = shares_of(step.plan);
  const auto bytes_for = [&](const std::vector<std::pair<size_t, const SampleShare*>>& some) {
    int64_t bytes = 0;
    for (const auto& [s, share] : some) bytes += content_bytes(step.plan.samples[s], *share, widths[s]);
    return bytes;
  };
  std::vector<Message> sends, receives;
  if (loader_ != nullptr) {
    for (int rank = 1; rank < comm_.world(); ++rank) {
      const auto some = shares_for(shares, rank);
      if (some.empty()) continue;
      const Tensor bytes = at::empty({bytes_for(some)}, at::kByte);
      char* at = reinterpret_cast<char*>(bytes.mutable_data_ptr<uint8_t>());
      for (const auto& [s, share] : some) at = write_contents(step.samples[s], *share, at);
      sends.push_back({rank, bytes});
    }
    comm_.exchange("data feed: contents", sends, receives).wait();
    // What lies elsewhere is not kept, so that rank 0 is a rank like the others.
    for (size_t s = 0; s < step.samples.size(); ++s) {
      const auto mine = shares[s].find(0);
      keep(mine == shares[s].end() ? nullptr : &mine->second, step.samples[s]);
    }
    return step;
  }
  const auto some = shares_for(shares, comm_.rank());
  if (some.empty()) return step;
  const Tensor bytes = at::empty({bytes_for(some)}, at::kByte);
  receives.push_back({0, bytes});
  comm_.exchange("data feed: contents", sends, receives).wait();
  const char* at = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  for (const auto& [s, share] : some) at = read_contents(at, *share, widths[s], step.samples[s]);
  return step;
}

}  // namespace loom
