#pragma once
// tokenizer.json, the file of the `tokenizers` package: byte-level BPE is written and read, with equal ids on both
// sides. A file that asks for anything else (a normalizer, byte fallback, another model ...) is refused: ids that are
// almost right would train a model that nobody else can use.
#include <memory>
#include <string>
#include <string_view>

#include "core/data/bpe_model.h"
#include "core/data/tokenizer.h"

namespace loom {

// UserError, one line "name: model.dropout: ...", whatever the bytes are.
BpeModel parse_tokenizer_json(std::string_view bytes, const std::string& name);
std::string write_tokenizer_json(const BpeModel& model);

// UserError when the file is missing or none of these; `where` stands before the path.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path, const std::string& where = "");

}  // namespace loom
