#pragma once
// What is in the checkpoints of a run, for people: their list, and whether they are whole.
#include <iosfwd>
#include <string>
#include <vector>

namespace loom {

// The checkpoint folder that a path means: itself, or the newest complete one of a run. UserError with the nearest name
// when it is neither.
std::string checkpoint_at(const std::string& path);

// One line per checkpoint: step, size, ranks, age, complete or what is damaged.
int list_checkpoints_of(const std::string& run, std::ostream& out);
// Reads every file of a checkpoint, or of all those of a run. One line per damage on `bad`; 2 when there is any.
int verify_checkpoints_at(const std::string& path, std::ostream& out, std::ostream& bad);

}  // namespace loom
