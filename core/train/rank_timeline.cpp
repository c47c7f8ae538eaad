#include "core/train/rank_timeline.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/texts.h"

namespace loom {
namespace {

constexpr size_t kBarriers = 5;
constexpr const char* kName = "trainer: timeline";

using Ages = std::array<double, kBarriers>;

// Of the step, behind each barrier.
Ages meet(Communicator& comm, const StepClock& clock) {
  Ages out{};
  for (double& age : out) {
    comm.barrier(kName, world_group(comm.world()));
    age = clock.age();
  }
  return out;
}

std::string number(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

// Lines of fields.
std::string packed(const Ages& ages, const std::vector<StepBar>& bars) {
  std::string out;
  for (const double age : ages) out += number(age) + "\t";
  for (const StepBar& bar : bars) {
    out += concat("\n", static_cast<int>(bar.action), "\t", bar.communication ? 1 : 0, "\t", number(bar.begin), "\t",
                  number(bar.end), "\t", bar.component);
  }
  return out;
}

double double_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

std::vector<StepBar> unpacked(const std::string& text, Ages& ages) {
  const std::vector<std::string> lines = split(text, '\n');
  const std::vector<std::string> first = split(lines.at(0), '\t');
  for (size_t i = 0; i < ages.size(); ++i) ages[i] = double_of(first.at(i));
  std::vector<StepBar> out;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = split(lines[i], '\t');
    out.push_back({static_cast<StepAction>(std::atoi(fields.at(0).c_str())), fields.at(4), fields.at(1) == "1",
                   double_of(fields.at(2)), double_of(fields.at(3))});
  }
  return out;
}

// How much older the step is by the clock of `ages` than by that of `reference`. A rank that was late to leave one
// barrier is not late for all.
double older(const Ages& ages, const Ages& reference) {
  Ages differences{};
  for (size_t i = 0; i < ages.size(); ++i) differences[i] = ages[i] - reference[i];
  std::sort(differences.begin(), differences.end());
  return differences[kBarriers / 2];
}

}  // namespace

RankTimeline gather_timeline(Communicator& comm, const StepClock& clock) {
  RankTimeline out;
  const std::vector<StepBar> mine = clock.bars();
  if (comm.world() == 1) {
    out.ranks.push_back(mine);
    return out;
  }
  const Ages ages = meet(comm, clock);
  const std::vector<std::string> texts = gather_texts(comm, kName, 0, packed(ages, mine));
  double first = std::numeric_limits<double>::infinity();
  for (const std::string& text : texts) {
    Ages theirs{};
    std::vector<StepBar>& bars = out.ranks.emplace_back(unpacked(text, theirs));
    const double later = -older(theirs, ages);  // than rank 0 it began
    first = std::min(first, later);
    for (StepBar& bar : bars) {
      bar.begin += later;
      bar.end += later;
    }
  }
  for (std::vector<StepBar>& bars : out.ranks) {
    for (StepBar& bar : bars) {
      bar.begin -= first;
      bar.end -= first;
    }
  }
  return out;
}

}  // namespace loom
