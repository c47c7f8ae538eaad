#pragma once
// Where samples come from. A source is a list with random access, safe to read from many threads; order, epochs, mixing
// and prefetching are not its business. Kinds of sources are rows of one table in source.cpp.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/data/sample.h"

namespace loom {

class Source {
 public:
  virtual ~Source();
  virtual int64_t size() const = 0;
  virtual const std::string& name() const = 0;      // unique in a recipe: what it says, else "train.0"
  virtual RawSample read(int64_t index) const = 0;  // any thread; an error makes the sample a skip
  // Its words alone, for who wants nothing else: no picture is opened where that can be avoided. Default: read().
  virtual RawSample read_without_media(int64_t index) const;
  virtual std::vector<std::string> modalities() const;  // of the media it gives; default none
  virtual double weight() const;                        // share among sources; 0 (default) = by size

  // Known without reading a sample. Its key is what randomness and the journal go by.
  virtual uint64_t sample_key(int64_t index) const;
  virtual std::string sample_name(int64_t index) const;
  // What stays with a sample when others are added: a hash of its place in a file (default), of the name of its file.
  virtual uint64_t sample_identity(int64_t index) const;
};

std::vector<std::string> source_types();
// The type of an entry of data.train or data.eval: what `type` says, else what `path` looks like (a folder, .jsonl or
// .json). UserError when neither tells.
ConfigValue source_type(const ConfigValue& entry);
// UserError with mark and nearest name when the type is unknown.
Schema source_schema(const ConfigValue& type);
// What a source of a recipe is called: its `name`, else its place in the recipe without "data.", as "train.0".
std::string source_name(const ConfigValue& config);
// `config` has passed its schema; `number` counts the sources of a list. UserError when files are missing or malformed.
std::unique_ptr<Source> make_source(const ConfigValue& config, int number);

// "recipe.yaml:12:30: data.train.0.images: ", the beginning of a message about a value; "" for one that stands nowhere.
std::string said_at(const ConfigValue& value);

}  // namespace loom
