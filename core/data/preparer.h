#pragma once
// Raw samples to prepared ones: tokens, supervision, one tensor per media item, and the verdict a step plan is made
// from. Pure and thread safe: what comes out depends on the sample, the recipe and the epoch, never on when or where it
// is prepared.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/data/chat_template.h"
#include "core/data/sample.h"
#include "core/data/source.h"
#include "core/data/tokenizer.h"
#include "core/model/component.h"

namespace loom {

// What happens to a sample with more tokens than data.budget.
enum class OverLong { error = 1, drop, shrink_media };
// And to one without a token that the model is to learn. Judged for samples of sources; a prompt may have none.
enum class Unsupervised { skip = 1, keep, error };

// By their names; UserError with mark and nearest name otherwise.
OverLong parse_over_long(const ConfigValue& value);
Unsupervised parse_unsupervised(const ConfigValue& value);

struct ModalityUse {
  const Encoder* encoder = nullptr;
  int64_t merge = 1;  // encoder outputs per LLM slot, of the connector
  // May items be divided over ranks (no unit of encoder or connector mixes `whole`)? Then verdicts name the legal cuts:
  // those of the layout at which the outputs divide by `merge`.
  bool divisible = false;
  std::string outputs{};  // partition of the encoder's "features"
  // Do its embeddings take rows of the text? If not they are a stream of their own, and cost no tokens.
  bool in_text = true;
  // Most rows of one item on one rank, 0 = any number, and the most ranks that share it. An item that no legal division
  // brings below is refused.
  int64_t most_rows = 0;
  int ranks = 1;
};

struct PreparerOptions {
  std::map<std::string, ModalityUse> modalities;
  const Tokenizer* tokenizer = nullptr;
  int64_t budget = 4096;
  OverLong over_long = OverLong::error;
  uint64_t seed = 0;
  Unsupervised unsupervised = Unsupervised::skip;
  const Backbone* backbone = nullptr;  // for the costs in verdicts; null = none
};

class Preparer {
 public:
  explicit Preparer(PreparerOptions options);

  // Layout: <bos>, the parts in order, and <eos> when the last part is supervised text; conversations as the chat
  // template says. A sample that cannot be decoded or measured becomes a skip with a reason; UserError for what the
  // whole recipe must mend (over_long: error, a modality without encoder, a tokenizer without turns).
  PreparedSample prepare(const RawSample& raw, uint64_t position = 0, uint64_t epoch = 0) const;
  // The same for a sample that has yet to be read; an error while reading makes it a skip, too. What was read is handed
  // back in `raw` when somebody wants it.
  PreparedSample prepare(const Source& source, int64_t index, uint64_t position = 0, uint64_t epoch = 0,
                         RawSample* raw = nullptr) const;
  // UserError when a source gives media that no encoder of the recipe takes.
  void check_source(const Source& source) const;

  const PreparerOptions& options() const { return options_; }

 private:
  struct Draft;

  const ModalityUse& use_of(const std::string& modality, const std::string& who) const;
  Draft draft_of(const RawSample& raw) const;
  ItemPlace place_item(const MediaInfo& info, const std::string& who) const;
  void check_item(const ItemPlace& place, size_t number, const std::string& who) const;
  int64_t rows_of(const std::vector<ItemPlace>& items) const;
  void place_items(const RawSample& raw, Draft& draft) const;
  void shrink(const RawSample& raw, Draft& draft) const;
  void lay_out(const RawSample& raw, const Draft& draft, PreparedSample& out) const;
  void prepare_media(const RawSample& raw, const Draft& draft, uint64_t epoch, PreparedSample& out) const;
  PreparedSample run(const RawSample& raw, uint64_t position, uint64_t epoch, bool of_source) const;

  PreparerOptions options_;
  ChatTemplate template_;
};

}  // namespace loom
