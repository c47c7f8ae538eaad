#include "pipelines/data_preview.h"

#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "pipelines/png.h"

namespace loom {
namespace {

constexpr size_t kMostPictures = 6;

// The item that takes the rows from `at`; null for text.
const ItemPlace* item_at(const PreparedSample& sample, int64_t at) {
  for (const ItemPlace& item : sample.verdict.items) {
    if (item.begin == at && item.slots > 0) return &item;
  }
  return nullptr;
}

std::string hex(std::string_view bytes) {
  std::string out;
  char text[8];
  for (const char c : bytes) {
    std::snprintf(text, sizeof text, "\\x%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += text;
  }
  return out;
}

std::string size_text(int64_t height, int64_t width) { return concat(width, "x", height); }

bool can_show(const Tensor& frames) {
  if (!frames.defined() || frames.dim() != 4 || frames.scalar_type() != at::kByte || frames.numel() == 0) return false;
  return frames.size(3) == 1 || frames.size(3) == 3 || frames.size(3) == 4;
}

std::string picture_file(const Tensor& frames, int64_t largest) {
  return can_show(frames) ? encode_png(scaled_down(frames[0], largest)) : "";
}

}  // namespace

std::vector<TokenPiece> token_pieces(const PreparedSample& sample, const Tokenizer& tokenizer) {
  constexpr int64_t kMostTokensOfACharacter = 4;
  std::vector<TokenPiece> out;
  const auto count = static_cast<int64_t>(sample.tokens.size());
  const auto learned = [&](int64_t t) { return sample.supervised[static_cast<size_t>(t)] != 0; };
  for (int64_t t = 0; t < count;) {
    TokenPiece piece;
    piece.supervised = learned(t);
    if (const ItemPlace* item = item_at(sample, t)) {
      piece.kind = TokenPiece::Kind::media;
      piece.text = item->modality;
      piece.tokens = item->slots;
      t += item->slots;
      out.push_back(std::move(piece));
      continue;
    }
    const int64_t token = sample.tokens[static_cast<size_t>(t)];
    piece.text = tokenizer.spelling(token);
    ++t;
    if (tokenizer.decode({token}).empty()) {
      piece.kind = TokenPiece::Kind::special;
      out.push_back(std::move(piece));
      continue;
    }
    // Tokens that are parts of characters are joined until they are whole.
    std::string joined = piece.text;
    int64_t end = t;
    while (!valid_utf8(joined) && end < count && end - t + 1 < kMostTokensOfACharacter &&
           learned(end) == piece.supervised)
      joined += tokenizer.spelling(sample.tokens[static_cast<size_t>(end++)]);
    if (valid_utf8(joined)) {
      piece.text = std::move(joined);
      piece.tokens += end - t;
      t = end;
    } else {
      piece.text = hex(piece.text);
    }
    out.push_back(std::move(piece));
  }
  return out;
}

PreviewSample preview_sample(const Preparer& preparer, const Source& source, int64_t index, int64_t largest) {
  PreviewSample out;
  out.name = source.sample_name(index);
  RawSample raw;
  PreparedSample sample;
  try {
    sample = preparer.prepare(source, index, 0, 0, &raw);
    if (!sample.verdict.ok) out.skipped = sample.verdict.reason;
  } catch (const UserError& problem) {
    out.skipped = problem.what();
  }
  size_t item = 0;
  for (const SamplePart& part : raw.parts) {
    if (part.kind != SamplePart::Kind::media) continue;
    const size_t number = item++;
    if (out.pictures.size() >= kMostPictures) continue;
    PreviewPicture& picture = out.pictures.emplace_back();
    picture.original = picture_file(part.media.data, largest);
    picture.original_size = size_text(part.media.info.height, part.media.info.width);
    if (number >= sample.media.size()) continue;
    const ItemPlace& place = sample.verdict.items[number];
    picture.slots = place.slots;
    const Tensor seen =
        preparer.options().modalities.at(place.modality).encoder->show(sample.media[number], place.meta);
    picture.seen = picture_file(seen, largest);
    if (can_show(seen)) picture.seen_size = size_text(seen.size(1), seen.size(2));
  }
  if (!out.skipped.empty()) return out;
  out.tokens = sample.verdict.tokens;
  out.supervised = sample.verdict.supervised;
  out.pieces = token_pieces(sample, *preparer.options().tokenizer);
  return out;
}

}  // namespace loom
