// First everything that needs only metadata (so that an over-long sample is never decoded further), then the media.
#include "core/data/preparer.h"

#include <ATen/ATen.h>

#include <new>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/text.h"

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

OverLong parse_over_long(const ConfigValue& value) {
  const std::string& text = value.as_string();
  if (text == "error") return OverLong::error;
  if (text == "drop") return OverLong::drop;
  throw UserError(concat(said_at(value), "expected error or drop, found ", quote_text(text),
                         did_you_mean(text, {"error", "drop"})));
}

Preparer::Preparer(PreparerOptions options) : options_(std::move(options)) {
  LOOM_CHECK(options_.tokenizer != nullptr, "a preparer without tokenizer");
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
  return prepare(read, position, epoch);
}

PreparedSample Preparer::prepare(const RawSample& raw, uint64_t position, uint64_t epoch) const {
  PreparedSample out;
  out.verdict.position = position;
  out.verdict.sample = raw.key;
  out.verdict.name = raw.name;
  try {
    lay_out(raw, out);
    prepare_media(raw, epoch, out);
  } catch (const Refusal& refusal) {
    return skip(std::move(out), refusal);
  }
  return out;
}

// Everything about an item but where its slots lie.
ItemPlace Preparer::place_item(const Media& media, const std::string& who) const {
  const std::string& modality = media.info.modality;
  const ModalityUse& use = use_of(modality, who);
  ItemPlace place;
  place.modality = modality;
  guarded([&] { place.meta = use.encoder->measure(media.info); });
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

void Preparer::lay_out(const RawSample& raw, PreparedSample& out) const {
  if (raw.parts.empty()) throw Refusal{"the sample is empty"};
  const Tokenizer& tokenizer = *options_.tokenizer;
  const auto add = [&](int64_t token, bool supervised) {
    out.tokens.push_back(token);
    out.supervised.push_back(supervised ? 1 : 0);
  };
  add(tokenizer.bos(), false);
  for (const SamplePart& part : raw.parts) {
    if (part.kind == SamplePart::Kind::text) {
      for (const int64_t token : tokenizer.encode(part.text)) add(token, part.supervised);
      continue;
    }
    ItemPlace place = place_item(part.media, raw.name);
    const bool in_text = options_.modalities.at(place.modality).in_text;
    place.begin = in_text ? static_cast<int64_t>(out.tokens.size()) : -1;
    // Checked before the rows are made: a refused size must not cost memory.
    if (in_text && place.slots <= options_.budget) {
      for (int64_t i = 0; i < place.slots; ++i) add(0, false);
    } else if (in_text) {
      out.verdict.tokens += place.slots;
    }
    out.verdict.items.push_back(std::move(place));
  }
  const SamplePart& last = raw.parts.back();
  if (last.kind == SamplePart::Kind::text && last.supervised) add(tokenizer.eos(), true);

  out.verdict.tokens += static_cast<int64_t>(out.tokens.size());
  if (out.verdict.tokens > options_.budget) {
    const std::string what = concat(out.verdict.tokens, " tokens exceed data.budget = ", options_.budget);
    if (options_.over_long == OverLong::drop) throw Refusal{what, true};
    throw UserError(concat(raw.name, ": ", what, "; raise data.budget or set data.over_long: drop"));
  }
  for (size_t t = 1; t < out.supervised.size(); ++t) out.verdict.supervised += out.supervised[t];
}

void Preparer::prepare_media(const RawSample& raw, uint64_t epoch, PreparedSample& out) const {
  uint64_t occurrence = 0;
  for (const SamplePart& part : raw.parts) {
    if (part.kind != SamplePart::Kind::media) continue;
    const ItemPlace& place = out.verdict.items[occurrence];
    const Encoder& encoder = *options_.modalities.at(place.modality).encoder;
    ++occurrence;
    const RandomKey key{
        .seed = options_.seed, .purpose = Purpose::augment, .step = epoch, .sample = raw.key, .occurrence = occurrence};
    Tensor rows;
    guarded([&] { rows = encoder.prepare(part.media, Philox(key)); });
    if (!rows.defined() || rows.dim() != 2 || rows.size(0) != place.meta.tokens ||
        rows.size(1) != encoder.media_width() || rows.scalar_type() != at::kFloat) {
      const std::string shape =
          rows.defined() ? concat(c10::toString(rows.scalar_type()), " ", rows.sizes()) : "nothing";
      throw PluginError(concat("encoders.", place.modality, ": prepare() gave ", shape, " for ", raw.name,
                               "; expected Float [", place.meta.tokens, ", ", encoder.media_width(),
                               "] as measure() and media_width() say"));
    }
    out.media.push_back(std::move(rows));
  }
}

}  // namespace loom
