#pragma once
// Samples as the model gets them, for people: pictures as they were and as the encoder sees them, tokens one by one
// with what is learned. Made by `omniloom data preview`.
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/preparer.h"

namespace loom {

// A stretch of a sample that is shown as one: a token, the tokens of one character, or the slots of a medium.
struct TokenPiece {
  enum class Kind { text = 1, special, media };
  Kind kind = Kind::text;
  std::string text;  // whole characters; bytes that belong to none as "\xE2"
  int64_t tokens = 1;
  bool supervised = false;
};

struct PreviewPicture {
  std::string original, seen;            // PNG files; empty when there is nothing to show
  std::string original_size, seen_size;  // "640x480"
  int64_t slots = 0;
};

struct PreviewSample {
  std::string name, skipped;  // skipped: why; empty = used
  int64_t tokens = 0, supervised = 0;
  std::vector<PreviewPicture> pictures;
  std::vector<TokenPiece> pieces;
};

struct PreviewPage {
  std::string title, split;  // name of the recipe; "train" or "eval"
  int64_t total = 0;         // samples of the split
  std::vector<PreviewSample> samples;
};

std::vector<TokenPiece> token_pieces(const PreparedSample& sample, const Tokenizer& tokenizer);
// Reads and prepares one sample; any thread. Pictures are at most `largest` pixels a side.
PreviewSample preview_sample(const Preparer& preparer, const Source& source, int64_t index, int64_t largest = 256);
// One page without external files, in the look of the report.
std::string preview_html(const PreviewPage& page);

}  // namespace loom
