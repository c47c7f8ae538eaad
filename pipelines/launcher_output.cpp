#include "pipelines/launcher_output.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

constexpr std::size_t kLongestLine = 1 << 16;  // longer ones are cut into lines
constexpr std::size_t kRemembered = 1000;      // lines

constexpr std::size_t index_of(RankStream stream) { return static_cast<std::size_t>(stream); }

std::string erase_text(const std::string& shown) { return "\r" + std::string(utf8_columns(shown), ' ') + "\r"; }

}  // namespace

RankOutput::RankOutput(int ranks, std::array<bool, 2> terminal, Write write)
    : terminal_(terminal), write_(std::move(write)), partial_(static_cast<std::size_t>(ranks)) {}

std::string& RankOutput::partial(int rank, RankStream stream) {
  return partial_.at(static_cast<std::size_t>(rank)).at(index_of(stream));
}

bool RankOutput::passes_at_once(int rank, RankStream stream) const {
  return rank == 0 && terminal_.at(index_of(stream));
}

void RankOutput::feed(int rank, RankStream stream, std::string_view bytes) {
  if (passes_at_once(rank, stream)) return feed_terminal(stream, bytes);
  feed_lines(rank, stream, bytes);
}

void RankOutput::close(int rank, RankStream stream) {
  std::string& rest = partial(rank, stream);
  if (rest.empty()) return;
  const std::string line = std::exchange(rest, "");
  if (passes_at_once(rank, stream)) return write_(stream, "\n");
  show_line(rank, stream, line);
}

void RankOutput::say(const std::string& line) { write_line(RankStream::error, line); }

// A carriage return begins the line anew, so only what stands behind the last one is on the screen.
void RankOutput::feed_terminal(RankStream stream, std::string_view bytes) {
  std::string& open = partial(0, stream);
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const std::size_t back = piece.rfind('\r');
    const std::string_view before = back == std::string_view::npos ? "" : piece.substr(0, back + 1);
    const std::string_view text = piece.substr(before.size());
    if (!before.empty()) {
      write_(stream, before);
      open.clear();
    }
    if (end == std::string_view::npos) {
      write_(stream, text);
      open += text;
      if (open.size() > kLongestLine) open.clear();
      return;
    }
    const bool whole = open.empty();
    open.clear();
    if (!whole || !said_by_another(0, stream, std::string(text))) write_(stream, concat(text, "\n"));
    bytes.remove_prefix(end + 1);
  }
}

void RankOutput::feed_lines(int rank, RankStream stream, std::string_view bytes) {
  std::string& open = partial(rank, stream);
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    open += bytes.substr(0, end);
    if (end != std::string_view::npos || open.size() > kLongestLine)
      show_line(rank, stream, std::exchange(open, std::string()));
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
  }
}

void RankOutput::show_line(int rank, RankStream stream, const std::string& line) {
  if (said_by_another(rank, stream, line)) return;
  write_line(stream, rank == 0 ? line : concat("[rank ", rank, "] ", line));
}

// An unfinished line of rank 0 on a terminal steps aside and comes back.
void RankOutput::write_line(RankStream stream, const std::string& line) {
  for (const RankStream other : {RankStream::out, RankStream::error}) {
    if (const std::string& shown = partial(0, other); passes_at_once(0, other) && !shown.empty())
      write_(other, erase_text(shown));
  }
  write_(stream, line + "\n");
  for (const RankStream other : {RankStream::out, RankStream::error}) {
    if (const std::string& shown = partial(0, other); passes_at_once(0, other) && !shown.empty()) write_(other, shown);
  }
}

// The n-th time that a rank says it counts as said when somebody's n-th time was shown; so a rank that repeats itself
// is still heard.
bool RankOutput::said_by_another(int rank, RankStream stream, const std::string& line) {
  if (stream != RankStream::error || trim(line).empty()) return false;
  const auto [at, added] = said_.try_emplace(line);
  if (added) {
    order_.push_back(line);
    if (order_.size() > kRemembered) {
      said_.erase(order_.front());
      order_.pop_front();
    }
  }
  Said& said = at->second;
  const int times = ++said.by_rank[rank];
  if (times <= said.shown) return true;
  said.shown = times;
  return false;
}

}  // namespace loom
