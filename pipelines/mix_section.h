#pragma once
// `data.mix`: in which shares the sources of data.train are mixed, and from which sample on others.
#include <string>
#include <vector>

#include "core/config/config_value.h"
#include "core/config/schema.h"
#include "core/data/mix.h"

namespace loom {

Schema mix_stage_schema();
// Names of data.train, in order.
std::vector<std::string> train_source_names(const ConfigValue& data);
// Names of sources that are given twice or cannot be written everywhere, and whatever is wrong with `mix`.
void check_mix(const ConfigValue& data, Mistakes& mistakes);
// Of a recipe without mistakes. Empty when it has no mix.
std::vector<MixSegment> read_mix(const ConfigValue& data);
// A map of weights by name ("train.0" may be nested), as weights of `names`; those that are not named are 0. UserError
// with mark and nearest name, and when none is above 0.
std::vector<double> read_weights(const ConfigValue& value, const std::vector<std::string>& names);

// The other way round: what to give `data.mix` for these segments, on one line.
std::string mix_text(const std::vector<MixSegment>& mix, const std::vector<std::string>& names);
// "photos 75 % · text 25 %".
std::string shares_text(const std::vector<double>& weights, const std::vector<std::string>& names);

}  // namespace loom
