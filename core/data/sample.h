#pragma once
// A sample on its way to a microbatch: raw as a source gives it (text, media and the borders of turns), then prepared
// (tokens, supervision, one tensor per media item) together with the verdict that a step plan is made from.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/step/media.h"
#include "core/step/step_plan.h"

namespace loom {

struct SamplePart {
  // A turn of a conversation is turn_begin (its text is the role), text and media, turn_end. A sample is either made of
  // turns only or has none; how turns are spelled is the chat template's business.
  enum class Kind { text = 1, media, turn_begin, turn_end };

  static SamplePart make_text(std::string text, bool supervised) {
    SamplePart part;
    part.text = std::move(text);
    part.supervised = supervised;
    return part;
  }
  static SamplePart make_media(Media media) {
    SamplePart part;
    part.kind = Kind::media;
    part.media = std::move(media);
    return part;
  }

  static SamplePart make_turn_begin(std::string role) {
    SamplePart part;
    part.kind = Kind::turn_begin;
    part.text = std::move(role);
    return part;
  }
  static SamplePart make_turn_end(bool supervised) {
    SamplePart part;
    part.kind = Kind::turn_end;
    part.supervised = supervised;
    return part;
  }

  Kind kind = Kind::text;
  std::string text;         // of turn_begin: "system", "user", "assistant" or "tool"
  bool supervised = false;  // of text and turn_end: is the model to learn to write it?
  Media media;
};

struct RawSample {
  uint64_t key = 0;
  std::string name;  // for people: "train.0#1234"
  std::vector<SamplePart> parts;
  std::string origin{};  // where it was read, for reasons: "doors.jsonl:18"; "" when the name says it all
};

struct PreparedSample {
  Verdict verdict;
  bool left_out = false;            // a skip that the recipe asked for (over_long, unsupervised), not a defect
  std::vector<int64_t> tokens;      // slots of media hold 0
  std::vector<uint8_t> supervised;  // per token: is it a target?
  std::vector<Tensor> media;        // one per item, [tokens of the item, media width], float32
  // On one of several ranks: the item's row with which each of `media` begins; one without rows is undefined. Empty =
  // they are whole.
  std::vector<int64_t> media_begin{};

  bool absent() const;  // is there nothing of it on this rank?
  int64_t first_row(size_t item) const { return media_begin.empty() ? 0 : media_begin.at(item); }
};

}  // namespace loom
