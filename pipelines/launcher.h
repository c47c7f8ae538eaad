#pragma once
// `--nproc N`: N copies of this program as the ranks of a run on this machine. The launcher passes on what they say and
// what it is asked to do, and ends all when one fails.
#include <string>
#include <vector>

namespace loom {

inline constexpr int kMostProcesses = 256;

struct LaunchOptions {
  double grace = 10;       // seconds in which the others may say what they miss, after a rank has failed
  double kill_after = 5;   // seconds from SIGTERM to SIGKILL
  int out = 1, error = 2;  // where it all goes
};

// Runs `count` ranks of a program (a path) and returns when all have ended. The exit code is that of the first rank
// that failed; a lost peer (4) counts as a consequence where another rank has a cause. A rank that was killed by a
// signal is told of, and gives 4 when others have noticed, else 128 + the signal. SIGINT and SIGTERM are passed on,
// each as often as it comes. From the main thread.
int launch_program(int count, const std::string& program, const std::vector<std::string>& arguments,
                   const LaunchOptions& options = {});

// This program, with these arguments.
int launch_ranks(int count, const std::vector<std::string>& arguments);

// What this process was started with, without --nproc and its number.
std::vector<std::string> arguments_of_ranks();
std::vector<std::string> without_nproc(const std::vector<std::string>& arguments);

}  // namespace loom
