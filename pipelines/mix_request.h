#pragma once
// How a running training is asked for another mix: a small file in its run folder, which rank 0 takes up between two
// steps. The file is gone when the change is in mix.jsonl.
#include <string>
#include <vector>

#include "core/data/loader.h"

namespace loom {

inline constexpr const char* kMixRequest = "mix.request.json";
inline constexpr const char* kMixJournal = "mix.jsonl";  // what was changed, and from which sample on

// Replaces a request that was not taken up yet. `weights` are parallel to `names`.
void write_mix_request(const std::string& run, const std::vector<std::string>& names,
                       const std::vector<double>& weights);
bool has_mix_request(const std::string& run);
// Carries out the request of a run folder, if there is one, and says so in one log line. One that cannot be carried out
// is removed with a warning: a training does not end for it.
void take_up_mix_request(const std::string& run, StepLoader& loader);

}  // namespace loom
