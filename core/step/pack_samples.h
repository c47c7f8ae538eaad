#pragma once
// Samples of a step into packs, one per lane and microbatch. Pure arithmetic in one order, so every rank makes the same
// packs; samples never leave their step.
#include <cstdint>
#include <vector>

#include "core/step/step_plan.h"

namespace loom {

// Indices into the list, in bins of at most `budget` tokens, in order, first fit. UserError when one sample exceeds the
// budget.
std::vector<std::vector<int64_t>> pack_samples(const std::vector<Verdict>& samples, int64_t budget);

// As many packs as first fit needs, rounded up to whole microbatches, with costs as even as the budget allows: pack
// m * lanes + l is that of lane l in microbatch m. The backbone's cost is what counts; that of a modality's items does
// as much where they are encoded in their own lane, and else decides between equals. A microbatch lasts as long as its
// largest pack, so packs of a microbatch are alike; first fit remains where nothing better is found, and for one lane.
std::vector<std::vector<int64_t>> pack_evenly(const std::vector<Verdict>& samples, int64_t budget,
                                              const WorldLayout& layout);

// Of a sample in the backbone. A backbone that says nothing of costs is balanced by tokens.
double cost_of(const Verdict& verdict);

}  // namespace loom
