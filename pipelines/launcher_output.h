#pragma once
// What a terminal or a file shows of several ranks: rank 0 speaks as if it were alone, with its progress line redrawn
// in place; the lines of the others begin with "[rank 3] ". Ranks that meet the same mistake say it in the same words;
// a line on stderr is shown once for all ranks that write it.
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace loom {

enum class RankStream { out, error };

class RankOutput {
 public:
  using Write = std::function<void(RankStream, std::string_view)>;
  // terminal: by stream; only there does a line of rank 0 appear before it is complete.
  RankOutput(int ranks, std::array<bool, 2> terminal, Write write);

  void feed(int rank, RankStream stream, std::string_view bytes);
  // The rank says no more; a last line without an end gets one.
  void close(int rank, RankStream stream);
  // A line of the launcher's own, on stderr.
  void say(const std::string& line);

 private:
  struct Said {
    int shown = 0;
    std::map<int, int> by_rank;
  };
  std::string& partial(int rank, RankStream stream);
  bool passes_at_once(int rank, RankStream stream) const;
  void feed_terminal(RankStream stream, std::string_view bytes);
  void feed_lines(int rank, RankStream stream, std::string_view bytes);
  void show_line(int rank, RankStream stream, const std::string& line);
  void write_line(RankStream stream, const std::string& line);
  bool said_by_another(int rank, RankStream stream, const std::string& line);

  std::array<bool, 2> terminal_;
  Write write_;
  std::vector<std::array<std::string, 2>> partial_;  // by rank and stream: what came since the last end of a line
  std::map<std::string, Said> said_;
  std::deque<std::string> order_;  // of said_, which forgets the oldest
};

}  // namespace loom
