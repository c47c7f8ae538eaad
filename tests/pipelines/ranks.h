#pragma once
// Made-up steps of several ranks, for files and pages about them.
#include <map>
#include <string>
#include <vector>

#include "pipelines/rank_files.h"

namespace loom::test {

inline WorldLayout world_of(int world) {
  WorldLayout out;
  out.world = world;
  return out;
}

// Four ranks; rank 3 encodes for 0.8 n seconds more than the others, who wait for it.
inline RankTable slow_rank_3(double n) {
  const std::vector<double> none(4);
  RankTable out;
  out.phases = {{StepAction::forward,
                 "encoders.image",
                 {0.1 * n, 0.1 * n, 0.1 * n, 0.9 * n},
                 {0.85 * n, 0.85 * n, 0.85 * n, 0.05 * n},
                 none},
                {StepAction::forward, "backbone", {0.5, 0.5, 0.5, 0.5}, {0.1, 0.1, 0.1, 0.1}, none}};
  out.seconds = {2, 2, 2, 2};
  out.compute = {0.6, 0.6, 0.6, 1.4};
  out.sent = {{"encoders.image", {5, 6, 7, 8}}, {"backbone", {8, 8, 8, 8}}, {"", {1, 1, 1, 1}}};
  return out;
}

inline std::map<std::string, std::vector<RankLoad>> even_loads() {
  return {{"encoders.image", {{1, 10, 100}, {2, 20, 100}, {3, 30, 100}, {4, 40, 100}}},
          {"backbone", {{1, 7, 7}, {1, 7, 7}, {1, 7, 7}, {1, 7, 7}}}};
}

inline RankTimeline two_rows() {
  RankTimeline out;
  out.ranks = {{{StepAction::data, "", false, 0, 0.01},
                {StepAction::forward, "encoders.image", false, 0.01, 0.05},
                {StepAction::forward, "backbone", false, 0.05, 0.1},
                {StepAction::backward, "backbone", false, 0.1, 0.2},
                {StepAction::update, "", false, 0.21, 0.22},
                {StepAction::forward, "encoders.image", true, 0.03, 0.05}},
               {{StepAction::forward, "encoders.image", false, 0.01, 0.05}}};
  return out;
}

}  // namespace loom::test
