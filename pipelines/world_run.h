#pragma once
// `omniloom train` as one of several processes.
#include "core/comm/rank_place.h"
#include "pipelines/training_run.h"

namespace loom {

// Meets the other ranks, makes sure that all of them mean the same run, trains, and returns the exit code.
int train_in_world(const TrainFlags& flags, const RankPlace& place);

}  // namespace loom
