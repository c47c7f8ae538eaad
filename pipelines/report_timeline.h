#pragma once
// A step of all ranks as a picture: a row per rank, a bar per phase in its component's colour, communication over them.
#include <string>
#include <vector>

#include "pipelines/rank_files.h"

namespace loom {

// Colour classes of the report for parts: components by their order, "optimizer", "data", "communication".
class PartColors {
 public:
  explicit PartColors(std::vector<std::string> components);
  std::string of(const std::string& part) const;
  const std::vector<std::string>& components() const { return components_; }

 private:
  std::vector<std::string> components_;  // backbone first, then by modality
};

// Components of a timeline, each once.
std::vector<std::string> components_of(const RankTimeline& timeline);

// A <figure> with an SVG and no script; every bar has a title to hover over. Of more than 32 ranks those that compute
// most and least are drawn. "" when there is nothing to draw.
std::string timeline_html(const ReadTimeline& read);

}  // namespace loom
