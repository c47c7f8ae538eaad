#pragma once
// What ranks will send in a step that is there, from dry runs of its plan. Each takes about as long as a step has
// operations, so a training asks once.
#include "core/data/loader.h"
#include "pipelines/job.h"
#include "pipelines/rank_files.h"

namespace loom {

// Of every rank of a small world, of rank 0 of a large one. `loaded` may lack contents of other ranks: a sample's
// targets are then taken to be its last rows, which matters to bytes only where layers are split over ranks (tp). Empty
// when a plugin's unit does not run without memory.
WireForecast wire_forecast(const Job& job, const LoadedStep& loaded);

}  // namespace loom
