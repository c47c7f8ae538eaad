#pragma once
// A sample on its way to a microbatch: raw as a source gives it (text and media, decoded), then prepared (tokens,
// supervision, one tensor per media item) together with the verdict that a step plan is made from.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/step/media.h"
#include "core/step/step_plan.h"

namespace loom {

struct SamplePart {
  enum class Kind { text = 1, media };

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

  Kind kind = Kind::text;
  std::string text;
  bool supervised = false;  // of text: is the model to learn to write it?
  Media media;
};

struct RawSample {
  uint64_t key = 0;
  std::string name;  // for people: "train.0#1234"
  std::vector<SamplePart> parts;
};

struct PreparedSample {
  Verdict verdict;
  bool left_out = false;            // a skip that the recipe asked for (over_long: drop), not a defect
  std::vector<int64_t> tokens;      // slots of media hold 0
  std::vector<uint8_t> supervised;  // per token: is it a target?
  std::vector<Tensor> media;        // one per item, [tokens of the item, media width], float32
};

}  // namespace loom
