// Fields carry a rank of importance; the line is built with all of them and loses the least important until it fits.
#include "core/observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/log.h"
#include "core/base/text.h"

namespace loom {
namespace {

struct Piece {
  std::string text;
  int importance;  // 0 stays longest
};

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

// Three digits behind the point, more for small losses, scientific beyond.
std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return shortest_double(loss);
  double size = std::abs(loss);
  if (size >= 1e5 || (size > 0 && size < 1e-4)) return format("%.2e", loss);
  return format(size < 0.1 && size > 0 ? "%.5f" : "%.3f", loss);
}

std::string step_text(const ProgressState& state) {
  if (state.steps <= 0) return state.unit + " " + std::to_string(state.step);
  std::string total = std::to_string(state.steps), done = std::to_string(state.step);
  std::string gap(total.size() > done.size() ? total.size() - done.size() : 0, ' ');
  return state.unit + " " + gap + done + "/" + total;
}

std::vector<Piece> pieces_of(const ProgressState& state) {
  std::vector<Piece> pieces = {{step_text(state), 0}};
  if (state.loss) pieces.push_back({"loss " + loss_text(*state.loss), 1});
  if (state.eval) pieces.push_back({"eval " + loss_text(*state.eval), 5});
  if (state.exact) pieces.push_back({"exact " + percent_text(*state.exact, "%.1f %%"), 3});
  if (state.tokens_per_second) {
    double rate = *state.tokens_per_second;
    bool sane = std::isfinite(rate) && std::abs(rate) < 1e15;
    pieces.push_back({(sane ? with_commas(std::llround(rate)) : "?") + " tok/s", 4});
  }
  if (state.flops_per_second) {
    std::string text = human_flops(*state.flops_per_second);
    if (state.peak_share) text += " (" + percent_text(*state.peak_share, "%.0f %%") + ")";
    pieces.push_back({text, 7});
  }
  if (state.data_fraction) pieces.push_back({"data " + percent_text(*state.data_fraction, "%.0f %%"), 6});
  for (const auto& [name, value] : state.extra) {
    std::string text = name;
    if (!name.empty()) text += " ";
    pieces.push_back({text += value, 8});
  }
  if (state.seconds_left) pieces.push_back({"eta " + human_duration(*state.seconds_left), 2});
  return pieces;
}

std::string join_pieces(const std::vector<Piece>& pieces) {
  std::string line;
  for (const Piece& piece : pieces) {
    if (!line.empty()) line += "  ";
    line += piece.text;
  }
  return line;
}

}  // namespace

std::string percent_text(double fraction, const char* pattern) {
  return std::isfinite(fraction) ? format(pattern, fraction * 100) : "? %";
}

double system_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string human_flops(double per_second) {
  static const char* const units[] = {" MFLOP/s", " GFLOP/s", " TFLOP/s", " PFLOP/s"};
  if (!std::isfinite(per_second)) return "? FLOP/s";
  double value = per_second / 1e6;
  int unit = 0;
  for (; std::abs(value) >= 999.5 && unit < 3; ++unit) value /= 1000;
  const double size = std::abs(value);
  return format(size >= 99.5 ? "%.0f" : size >= 9.95 ? "%.1f" : "%.2f", value) + units[unit];
}

std::string progress_line(const ProgressState& state, int width) {
  std::vector<Piece> pieces = pieces_of(state);
  std::size_t room = static_cast<std::size_t>(std::max(width, 0));
  std::string line = join_pieces(pieces);
  while (utf8_columns(line) > room && pieces.size() > 1) {
    auto last = std::max_element(pieces.begin(), pieces.end(),
                                 [](const Piece& a, const Piece& b) { return a.importance < b.importance; });
    pieces.erase(last);
    line = join_pieces(pieces);
  }
  return utf8_cut(line, room);
}

ProgressPolicy ProgressPolicy::detect(std::FILE* stream) {
  ProgressPolicy policy;
  policy.terminal = ::isatty(::fileno(stream)) == 1;
  return policy;
}

Progress::Progress(std::FILE* stream, ProgressPolicy policy, std::function<double()> clock)
    : stream_(stream), policy_(policy), clock_(clock ? std::move(clock) : system_clock_seconds) {
  if (policy_.terminal) set_log_before_line([this] { step_aside(); });
}

Progress::~Progress() {
  if (policy_.terminal) set_log_before_line({});
  finish();
}

int Progress::width() const {
  constexpr int kUnlimited = 1 << 20;
  if (policy_.width > 0) return policy_.width - (policy_.terminal ? 1 : 0);
  if (!policy_.terminal) return kUnlimited;
  struct winsize size {};
  bool known = ::ioctl(::fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return (known ? size.ws_col : 80) - 1;  // a full last column wraps on some terminals
}

void Progress::update(const ProgressState& state) {
  std::lock_guard<std::mutex> guard(mutex_);
  double now = clock_();
  bool first = !any_;
  any_ = true;
  last_ = state;
  shown_ = false;
  bool last_step = state.steps > 0 && state.step >= state.steps;
  bool due = first || last_step;
  if (policy_.terminal) {
    due = due || drawn_ == 0 || now - drawn_at_ >= policy_.redraw_seconds;
  } else {
    due = due || (policy_.every_seconds > 0 && now - drawn_at_ >= policy_.every_seconds);
    due = due || (policy_.every_steps > 0 && state.step - drawn_step_ >= policy_.every_steps);
  }
  if (!due) return;
  draw(state);
  drawn_at_ = now;
  drawn_step_ = state.step;
}

void Progress::draw(const ProgressState& state) {
  std::string line = progress_line(state, width());
  std::size_t columns = utf8_columns(line);
  shown_ = true;
  if (!policy_.terminal) {
    line += "\n";
  } else {
    std::size_t room = static_cast<std::size_t>(std::max(width(), 0));
    std::size_t old = std::min(drawn_, room);  // the terminal may have become narrower
    drawn_ = columns;
    line = "\r" + line + std::string(old > columns ? old - columns : 0, ' ');
  }
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fflush(stream_);
}

void Progress::step_aside() {
  std::lock_guard<std::mutex> guard(mutex_);
  if (drawn_ == 0) return;
  std::size_t room = static_cast<std::size_t>(std::max(width(), 0));
  std::string line = "\r" + std::string(std::min(drawn_, room), ' ') + "\r";
  drawn_ = 0;
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fflush(stream_);
}

void Progress::finish() {
  std::lock_guard<std::mutex> guard(mutex_);
  if (!any_) return;
  if (!shown_ || (policy_.terminal && drawn_ == 0)) draw(last_);
  if (policy_.terminal) {
    std::fputc('\n', stream_);
    std::fflush(stream_);
  }
  drawn_ = 0;
  any_ = false;
}

}  // namespace loom
