#pragma once
// Options that sources share, so that each is spelled once and means the same everywhere.
#include <cstdint>
#include <string>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/data/picture.h"

namespace loom {

struct SourceOptions {
  int64_t limit = 0;  // 0 = all
  double weight = 0;  // 0 = by size
  std::string modality = "image";
  PictureOptions pictures{};

  int64_t limited(int64_t size) const { return limit > 0 && limit < size ? limit : size; }
};

// `name`, of every source.
void add_name_field(Schema& schema);
// name, modality, alpha, max_pixels, limit, weight.
void add_source_fields(Schema& schema);
SourceOptions read_source_options(const ConfigValue& config);

// "; did you mean 'data/doors.jsonl'?" for a path that does not exist, from the names beside it; or nothing.
std::string near_path(const std::string& path);

}  // namespace loom
