// First everything that needs only metadata (so that an over-long sample is never decoded further), then the media.
#include "core/data/preparer.h"

#include <ATen/ATen.h>

#include <new>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/data/shrink.h"
#include "core/step/spread_items.h"

namespace loom {
namespace {

// Why one sample is left out; everybody else is fine.
struct Refusal {
  std::string reason;
  bool left_out = false;
};

std::string first_line(const std::string& text) {
  const size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end);
}

// Runs what may fail because of one sample's contents. Our own bugs, a broken plugin or machine stop the run instead.
template <class Body>
void guarded(const Body& body) {
  try {
    body();
  } catch (const UserError& problem) {
    throw Refusal{first_line(problem.what())};
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw EnvironmentError("out of memory while preparing a sample");
  } catch (const c10::Error& problem) {
    throw Refusal{first_line(problem.what_without_backtrace())};
  } catch (const std::exception& problem) {
    throw Refusal{first_line(problem.what())};
  }
}

const Tokenizer& tokenizer_of(const PreparerOptions& options) {
  LOOM_CHECK(options.tokenizer != nullptr, "a preparer without tokenizer");
  return *options.tokenizer;
}

// "train.0#5", "train.0#5: doors.jsonl:6".
std::string who_is(const RawSample& raw) { return raw.origin.empty() ? raw.name : raw.name + ": " + raw.origin; }

PreparedSample skip(PreparedSample out, const Refusal& refusal) {
  out.verdict.ok = false;
  out.verdict.reason = refusal.reason;
  out.left_out = refusal.left_out;
  out.tokens.clear();
  out.supervised.clear();
  out.media.clear();
  out.verdict.items.clear();
  out.verdict.tokens = out.verdict.supervised = 0;
  return out;
}

}  // namespace

// What a sample consists of before its length is judged.
struct Preparer::Draft {
  // Tokens, or the item of that number.
  struct Run {
    std::vector<int64_t> tokens;
    bool supervised = false;
    int64_t item = -1;
  };
  std::vector<Run> runs;
  std::vector<const Media*> media;
  std::vector<MediaInfo> sizes;  // that the media are to have
  std::vector<ItemPlace> items;  // without their `begin`
  int64_t text = 0;              // tokens
  int64_t rows = 0;              // of text and media
};

OverLong parse_over_long(const ConfigValue& value) {
  const std::string& text = value.as_string();
  if (text == "error") return OverLong::error;
  if (text == "drop") return OverLong::drop;
  if (text == "shrink_media") return OverLong::shrink_media;
  throw UserError(concat(said_at(value), "expected error, drop or shrink_media, found ", quote_text(text),
                         did_you_mean(text, {"error", "drop", "shrink_media"})));
}

Unsupervised parse_unsupervised(const ConfigValue& value) {
  const std::string& text = value.as_string();
  if (text == "skip") return Unsupervised::skip;
  if (text == "keep") return Unsupervised::keep;
  if (text == "error") return Unsupervised::error;
  throw UserError(concat(said_at(value), "expected skip, keep or error, found ", quote_text(text),
                         did_you_mean(text, {"skip", "keep", "error"})));
}

Preparer::Preparer(PreparerOptions options) : options_(std::move(options)), template_(tokenizer_of(options_)) {
  LOOM_CHECK_USER(options_.budget > 0, "data.budget is ", options_.budget, "; expected at least 1 token");
  for (const auto& [modality, use] : options_.modalities) {
    LOOM_CHECK(use.encoder != nullptr && use.merge >= 1, "modality ", modality, " with merge ", use.merge);
  }
}

const ModalityUse& Preparer::use_of(const std::string& modality, const std::string& who) const {
  const auto found = options_.modalities.find(modality);
  if (found != options_.modalities.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, use] : options_.modalities) known.push_back(name);
  throw UserError(concat(who, ": has media of modality ", quote_text(modality),
                         ", but model.encoders has none of that name", did_you_mean(modality, known),
                         known.empty() ? "" : concat(" (there is: ", join(known, ", "), ")")));
}

void Preparer::check_source(const Source& source) const {
  for (const std::string& modality : source.modalities()) use_of(modality, concat("data source ", source.name()));
}

PreparedSample Preparer::prepare(const Source& source, int64_t index, uint64_t position, uint64_t epoch,
                                 RawSample* raw) const {
  RawSample own;
  RawSample& read = raw != nullptr ? *raw : own;
  try {
    guarded([&] { read = source.read(index); });
  } catch (const Refusal& refusal) {
    PreparedSample out;
    out.verdict.position = position;
    out.verdict.sample = source.sample_key(index);
    out.verdict.name = source.sample_name(index);
    return skip(std::move(out), refusal);
  }
  return run(read, position, epoch, true);
}

PreparedSample Preparer::prepare(const RawSample& raw, uint64_t position, uint64_t epoch) const {
  return run(raw, position, epoch, false);
}

PreparedSample Preparer::run(const RawSample& raw, uint64_t position, uint64_t epoch, bool of_source) const {
  PreparedSample out;
  out.verdict.position = position;
  out.verdict.sample = raw.key;
  out.verdict.name = raw.name;
  try {
    Draft draft = draft_of(raw);
    place_items(raw, draft);
    if (draft.rows > options_.budget) shrink(raw, draft);
    for (size_t i = 0; i < draft.items.size(); ++i) check_item(draft.items[i], i, who_is(raw));
    lay_out(raw, draft, out);
    if (of_source && out.verdict.supervised == 0 && options_.unsupervised != Unsupervised::keep) {
      if (options_.unsupervised == Unsupervised::skip) throw Refusal{"no supervised token", true};
      throw UserError(concat(who_is(raw), ": no supervised token; mend the sample or set data.unsupervised: skip"));
    }
    prepare_media(raw, draft, epoch, out);
  } catch (Refusal& refusal) {
    if (!raw.origin.empty()) refusal.reason = raw.origin + ": " + refusal.reason;
    return skip(std::move(out), refusal);
  }
  return out;
}

// Everything about an item but where its slots lie.
ItemPlace Preparer::place_item(const MediaInfo& info, const std::string& who) const {
  const std::string& modality = info.modality;
  const ModalityUse& use = use_of(modality, who);
  ItemPlace place;
  place.modality = modality;
  guarded([&] { place.meta = use.encoder->measure(info); });
  const ItemMeta& meta = place.meta;
  if (meta.tokens < 0 || meta.outputs < 0) {
    throw PluginError(concat("encoders.", modality, ": measure() gave ", meta.tokens, " tokens and ", meta.outputs,
                             " outputs for ", who));
  }
  if (meta.tokens == 0 || meta.outputs == 0) throw Refusal{concat("its ", modality, " gives no rows")};
  if (meta.outputs % use.merge != 0) {
    throw Refusal{concat("its ", modality, " gives ", meta.outputs,
                         " encoder outputs, which the connector's merge factor ", use.merge, " does not divide")};
  }
  place.slots = meta.outputs / use.merge;
  if (!use.divisible) return place;
  ItemLayout layout;
  guarded([&] { layout = use.encoder->layout(meta); });
  if (layout.whole) return place;
  std::string mistake = layout_mistake(layout, meta);
  if (mistake.empty()) mistake = outputs_mistake(layout, meta, use.outputs);
  if (!mistake.empty())
    throw PluginError(concat("encoders.", modality, ": layout() of an item of ", who, ": ", mistake));
  place.cuts = legal_cuts(layout, use.outputs, use.merge);
  return place;
}

// An item that no legal division brings below the rows that a rank may hold of it.
void Preparer::check_item(const ItemPlace& place, size_t number, const std::string& who) const {
  const ModalityUse& use = options_.modalities.at(place.modality);
  const int64_t rows = place.meta.tokens;
  if (use.most_rows == 0 || rows <= use.most_rows) return;
  if (parts_within(place.cuts, rows, use.most_rows, use.ranks).has_value()) return;
  const std::string key = concat("parallel.encoders.", place.modality);
  const std::string how = place.cuts.empty() ? "cannot be divided here" : concat("over ", use.ranks, " ranks at most");
  const std::string what = concat("its item ", number + 1, " has ", rows, " ", place.modality, " rows, ", how,
                                  "; a rank may hold ", use.most_rows, " of one item");
  if (options_.over_long != OverLong::error) throw Refusal{what, true};
  throw UserError(concat(who, ": ", what, "; raise ", key, ".most_rows or ", key, ".sp, or set data.over_long: drop"));
}

Preparer::Draft Preparer::draft_of(const RawSample& raw) const {
  if (raw.parts.empty()) throw Refusal{"the sample is empty"};
  const Tokenizer& tokenizer = *options_.tokenizer;
  Draft draft;
  const auto add = [&](std::vector<int64_t> tokens, bool supervised) {
    draft.text += static_cast<int64_t>(tokens.size());
    draft.runs.push_back({std::move(tokens), supervised});
  };
  const bool conversation = raw.parts.front().kind == SamplePart::Kind::turn_begin;
  if (conversation) {
    template_.check();
  } else {
    add({tokenizer.bos()}, false);
  }
  for (const SamplePart& part : raw.parts) {
    switch (part.kind) {
      case SamplePart::Kind::text:
        add(tokenizer.encode(part.text), part.supervised);
        break;
      case SamplePart::Kind::media:
        draft.runs.push_back({{}, false, static_cast<int64_t>(draft.media.size())});
        draft.media.push_back(&part.media);
        draft.sizes.push_back(part.media.info);
        break;
      case SamplePart::Kind::turn_begin:
        LOOM_CHECK(conversation, raw.name, ": a turn in a sample that began without one");
        add(template_.turn_begin(part.text), false);
        break;
      case SamplePart::Kind::turn_end:
        add({template_.turn_end()}, part.supervised);
        add(template_.after_turn(), false);
        break;
    }
  }
  const SamplePart& last = raw.parts.back();
  if (!conversation && last.kind == SamplePart::Kind::text && last.supervised) add({tokenizer.eos()}, true);
  return draft;
}

void Preparer::place_items(const RawSample& raw, Draft& draft) const {
  draft.items.clear();
  for (const MediaInfo& info : draft.sizes) draft.items.push_back(place_item(info, who_is(raw)));
  draft.rows = draft.text + rows_of(draft.items);
}

int64_t Preparer::rows_of(const std::vector<ItemPlace>& items) const {
  int64_t rows = 0;
  for (const ItemPlace& item : items) rows += options_.modalities.at(item.modality).in_text ? item.slots : 0;
  return rows;
}

// For a sample above the budget: smaller media, or what the recipe says.
void Preparer::shrink(const RawSample& raw, Draft& draft) const {
  const std::string what = concat(draft.rows, " tokens exceed data.budget = ", options_.budget);
  if (options_.over_long == OverLong::drop) throw Refusal{what, true};
  if (options_.over_long == OverLong::error) {
    throw UserError(concat(who_is(raw), ": ", what, "; raise data.budget or set data.over_long: drop or shrink_media"));
  }
  std::vector<MediaInfo> media;
  std::vector<size_t> numbers;  // of the media that take rows of the text
  for (size_t i = 0; i < draft.sizes.size(); ++i) {
    if (draft.media[i]->data.dim() != 4 || !options_.modalities.at(draft.sizes[i].modality).in_text) continue;
    media.push_back(draft.sizes[i]);
    numbers.push_back(i);
  }
  if (media.empty()) throw Refusal{what + ", and there is no picture to shrink", true};
  if (draft.text >= options_.budget)
    throw Refusal{concat(what, ", ", draft.text, " of them text, so that smaller pictures do not help"), true};
  const auto judge = [&](const std::vector<MediaInfo>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) draft.sizes[numbers[i]] = sizes[i];
    try {
      place_items(raw, draft);
    } catch (const Refusal&) {
      return FitVerdict::too_small;
    }
    return draft.rows <= options_.budget ? FitVerdict::fits : FitVerdict::too_long;
  };
  const std::optional<std::vector<MediaInfo>> fitting = shrink_media(media, judge);
  if (!fitting.has_value()) throw Refusal{what + " at every size of its pictures", true};
  judge(*fitting);
}

void Preparer::lay_out(const RawSample& raw, const Draft& draft, PreparedSample& out) const {
  LOOM_CHECK(draft.rows <= options_.budget, raw.name, " has ", draft.rows, " rows");
  out.tokens.reserve(static_cast<size_t>(draft.rows));
  out.supervised.reserve(static_cast<size_t>(draft.rows));
  out.verdict.items = draft.items;
  for (const Draft::Run& run : draft.runs) {
    if (run.item < 0) {
      out.tokens.insert(out.tokens.end(), run.tokens.begin(), run.tokens.end());
    } else {
      ItemPlace& place = out.verdict.items[static_cast<size_t>(run.item)];
      const bool in_text = options_.modalities.at(place.modality).in_text;
      place.begin = in_text ? static_cast<int64_t>(out.tokens.size()) : -1;
      if (in_text) out.tokens.insert(out.tokens.end(), static_cast<size_t>(place.slots), 0);
    }
    out.supervised.resize(out.tokens.size(), run.supervised ? 1 : 0);
  }
  out.verdict.tokens = draft.rows;
  if (options_.backbone != nullptr) out.verdict.cost = options_.backbone->cost(draft.rows);
  for (size_t t = 1; t < out.supervised.size(); ++t) out.verdict.supervised += out.supervised[t];
}

void Preparer::prepare_media(const RawSample& raw, const Draft& draft, uint64_t epoch, PreparedSample& out) const {
  for (size_t i = 0; i < draft.media.size(); ++i) {
    const ItemPlace& place = out.verdict.items[i];
    const Encoder& encoder = *options_.modalities.at(place.modality).encoder;
    const RandomKey key{.seed = options_.seed,
                        .purpose = Purpose::augment,
                        .step = epoch,
                        .sample = raw.key,
                        .occurrence = static_cast<uint64_t>(i) + 1};
    const bool as_it_is = same_size(draft.media[i]->info, draft.sizes[i]);
    Tensor rows;
    guarded([&] {
      rows = as_it_is ? encoder.prepare(*draft.media[i], Philox(key))
                      : encoder.prepare(resize_media(*draft.media[i], draft.sizes[i]), Philox(key));
    });
    if (!rows.defined() || rows.dim() != 2 || rows.size(0) != place.meta.tokens ||
        rows.size(1) != encoder.media_width() || rows.scalar_type() != at::kFloat) {
      const std::string shape =
          rows.defined() ? concat(c10::toString(rows.scalar_type()), " ", rows.sizes()) : "nothing";
      throw PluginError(concat("encoders.", place.modality, ": prepare() gave ", shape, " for ", who_is(raw),
                               "; expected Float [", place.meta.tokens, ", ", encoder.media_width(),
                               "] as measure() and media_width() say"));
    }
    out.media.push_back(std::move(rows));
  }
}

}  // namespace loom
