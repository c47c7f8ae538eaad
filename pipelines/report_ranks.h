#pragma once
// The report's section on ranks: who waits for whom, one step as a picture, and how evenly components lie on the ranks,
// predicted and measured. All of it is read from the run's files. A run of one rank shows the picture alone.
#include <string>

namespace loom {

struct RanksSection {
  std::string title, aside, body;  // body is empty where the files say nothing
};

RanksSection ranks_html(const std::string& metrics_file, const std::string& ranks_file,
                        const std::string& timeline_file);

}  // namespace loom
