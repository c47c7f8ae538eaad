#pragma once
// The line that tells how the training goes. On a terminal it is redrawn in place; in a file or a pipe it becomes one
// line every so many seconds or steps. It never wraps: fields that matter less are left out first.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace loom {

struct ProgressState {
  int64_t step = 0;
  int64_t steps = 0;  // 0 = unknown
  std::string unit = "step";
  std::optional<double> loss;
  std::optional<double> eval;   // loss on the evaluation data
  std::optional<double> exact;  // fraction of exact answers, 0 to 1
  std::optional<double> tokens_per_second;
  std::optional<double> flops_per_second;
  std::optional<double> peak_share;     // of the measured peak, 0 to 1; shown with flops_per_second
  std::optional<double> data_fraction;  // of the time spent waiting for data, 0 to 1
  std::optional<double> seconds_left;
  std::vector<std::pair<std::string, std::string>> extra;  // shown before eta; a name may be empty
};

// "step  200/800  loss 0.412  eval 0.397  exact 61.3 %  23,100 tok/s  158 GFLOP/s (64 %)  data 0 %  eta 1:31", at most
// width columns.
std::string progress_line(const ProgressState& state, int width);

// "158 GFLOP/s", "1.25 TFLOP/s".
std::string human_flops(double per_second);
// "61.3 %"; "? %" for what is no number.
std::string percent_text(double fraction, const char* pattern = "%.1f %%");
// Seconds of a clock that never goes back.
double system_clock_seconds();

struct ProgressPolicy {
  bool terminal = false;
  int width = 0;              // columns; 0 = ask the terminal at every line, unlimited when it is none
  double every_seconds = 10;  // without a terminal: a line is printed when either limit is reached
  int64_t every_steps = 0;    // 0 = no limit by steps
  double redraw_seconds = 0.1;

  static ProgressPolicy detect(std::FILE* stream);
};

class Progress {
 public:
  // clock: seconds, ever rising; empty = the system's.
  Progress(std::FILE* stream, ProgressPolicy policy, std::function<double()> clock = {});
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressState& state);
  // Takes the line away so that something else can be printed; the next update draws it again. Also before every log
  // line.
  void step_aside();
  // Draws the last state for good and goes to the next line.
  void finish();

 private:
  void draw(const ProgressState& state);
  int width() const;

  std::mutex mutex_;  // log lines come from other threads
  std::FILE* stream_;
  ProgressPolicy policy_;
  std::function<double()> clock_;
  ProgressState last_;
  bool any_ = false;       // an update came
  bool shown_ = false;     // the last update is on the screen or in the file
  std::size_t drawn_ = 0;  // columns of the line in place
  double drawn_at_ = 0;
  int64_t drawn_step_ = 0;
};

}  // namespace loom
