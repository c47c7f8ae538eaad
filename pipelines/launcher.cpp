// One thread: signals arrive as bytes of a descriptor, beside what the ranks write. Nothing here touches LibTorch.
#include "pipelines/launcher.h"

#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/comm/rank_place.h"
#include "pipelines/launcher_output.h"
#include "pipelines/launcher_process.h"

namespace loom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLostPeer = 4;
constexpr RankStream kStreams[] = {RankStream::out, RankStream::error};

std::chrono::nanoseconds seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

// SIGINT, SIGTERM and SIGCHLD as something to read, for a scope.
class Signals {
 public:
  Signals() {
    sigset_t ours;
    ::sigemptyset(&ours);
    for (const int number : {SIGINT, SIGTERM, SIGCHLD}) ::sigaddset(&ours, number);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;  // ignored, it would take the exit codes with it
    ::sigaction(SIGCHLD, &standard, &child_before_);
    ::sigprocmask(SIG_BLOCK, &ours, &before_);
    reader_ = Descriptor(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
    LOOM_CHECK(reader_.open(), "signalfd: ", errno_text(errno));
  }
  ~Signals() {
    next();
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::sigaction(SIGCHLD, &child_before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return reader_.get(); }
  const sigset_t& before() const { return before_; }
  // All that have come, without those of children.
  std::vector<int> next() {
    std::vector<int> numbers;
    struct signalfd_siginfo info {};
    while (::read(reader_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (const int number = static_cast<int>(info.ssi_signo); number != SIGCHLD) numbers.push_back(number);
    }
    return numbers;
  }

 private:
  sigset_t before_{};
  struct sigaction child_before_ {};
  Descriptor reader_;
};

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody is listening any more
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string names_of(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(names, ", "));
}

class Launch {
 public:
  Launch(int count, const LaunchOptions& options)
      : options_(options),
        terminal_{::isatty(options.out) == 1, ::isatty(options.error) == 1},
        ranks_(static_cast<std::size_t>(count)),
        output_(count, terminal_, [this](RankStream stream, std::string_view bytes) {
          write_all(stream == RankStream::out ? options_.out : options_.error, bytes);
        }) {}
  ~Launch() {
    for (const int rank : alive()) {
      ::kill(-of(rank).pid, SIGKILL);
      ::waitpid(of(rank).pid, nullptr, 0);
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int run(const std::string& program, const std::vector<std::string>& arguments) {
    start(program, arguments);
    while (!alive().empty()) {
      wait_for_news();
      for (const int number : signals_.next()) pass_on(number);
      for (const int rank : alive()) {
        read_from(rank);
        look_after(rank);
      }
      end_others();
    }
    return code();
  }

 private:
  enum class Phase { running = 1, asked, killed };
  struct Failure {
    int rank = 0, status = 0;  // as waitpid says it
  };

  RankProcess& of(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }
  std::vector<int> alive() {
    std::vector<int> result;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].pid > 0) result.push_back(static_cast<int>(i));
    }
    return result;
  }

  void start(const std::string& program, const std::vector<std::string>& arguments) {
    int port = 0;
    port_ = reserve_port(port);
    const std::string world = std::to_string(ranks_.size());
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const std::string number = std::to_string(rank);
      RankCommand command{program, arguments, {}, {-1, -1}, signals_.before()};
      command.variables = {{kRankVariable, number},         {kWorldVariable, world},
                           {kLocalRankVariable, number},    {kLocalWorldVariable, world},
                           {kAddressVariable, "127.0.0.1"}, {kPortVariable, std::to_string(port)}};
      if (rank == 0) command.terminals = {terminal_[0] ? options_.out : -1, terminal_[1] ? options_.error : -1};
      of(rank) = start_rank(command);
    }
  }

  void wait_for_news() {
    std::vector<struct pollfd> watched = {{signals_.descriptor(), POLLIN, 0}};
    for (const int rank : alive()) {
      for (const Descriptor& stream : of(rank).streams) {
        if (stream.open()) watched.push_back({stream.get(), POLLIN, 0});
      }
    }
    auto left = std::chrono::milliseconds(1000);
    if (deadline_.has_value())
      left = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()),
                        std::chrono::milliseconds(0), left);
    ::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
    for (std::size_t i = 0; i < terminal_.size(); ++i) {
      const Descriptor& stream = ranks_.front().streams.at(i);
      if (terminal_.at(i) && stream.open()) copy_terminal_size(i == 0 ? options_.out : options_.error, stream.get());
    }
  }

  // A bounded part of what is there, so that a rank that never stops talking does not keep the others waiting.
  bool read_from(int rank) {
    bool more = false;
    for (const RankStream which : kStreams) {
      Descriptor& stream = of(rank).streams.at(static_cast<std::size_t>(which));
      if (!stream.open()) continue;
      char buffer[1 << 16];
      const ssize_t got = ::read(stream.get(), buffer, sizeof buffer);
      if (got > 0) output_.feed(rank, which, {buffer, static_cast<std::size_t>(got)});
      more = more || got > 0 || (got < 0 && errno == EINTR);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {  // EIO: a terminal that nobody has open
        output_.close(rank, which);
        stream.reset();
      }
    }
    return more;
  }

  void look_after(int rank) {
    int status = 0;
    if (::waitpid(of(rank).pid, &status, WNOHANG) != of(rank).pid) return;
    of(rank).pid = -1;
    while (read_from(rank)) continue;  // its last words; not those of others who hold its pipe
    for (const RankStream which : kStreams) output_.close(rank, which);
    for (Descriptor& stream : of(rank).streams) stream.reset();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
    if (passed_on_.contains(number)) {
      if (stopped_ == 0) stopped_ = 128 + number;
      return;
    }
    if (phase_ != Phase::running) return;  // our doing
    if (failures_.empty()) deadline_ = Clock::now() + seconds(options_.grace);
    failures_.push_back({rank, status});
    if (WIFSIGNALED(status))
      output_.say(concat("rank ", rank, " was killed by signal ", number, " (", ::strsignal(number), ")"));
  }

  void pass_on(int number) {
    passed_on_.insert(number);
    for (const int rank : alive()) ::kill(of(rank).pid, number);
  }

  void end_others() {
    const std::vector<int> left = alive();
    if (left.empty() || !deadline_.has_value() || Clock::now() < *deadline_) return;
    if (phase_ == Phase::running) {
      output_.say(concat(names_of(left), left.size() == 1 ? " is" : " are", " ended, ", shortest_double(options_.grace),
                         " s after rank ", failures_.front().rank, " has failed"));
      for (const int rank : left) ::kill(of(rank).pid, SIGTERM);
      phase_ = Phase::asked;
      deadline_ = Clock::now() + seconds(options_.kill_after);
    } else {
      for (const int rank : left) ::kill(-of(rank).pid, SIGKILL);
      phase_ = Phase::killed;
      deadline_.reset();
    }
  }

  int code() const {
    const auto noticed = [](const Failure& failure) {
      return WIFEXITED(failure.status) && WEXITSTATUS(failure.status) == kLostPeer;
    };
    if (failures_.empty()) return stopped_;
    const auto cause = std::find_if_not(failures_.begin(), failures_.end(), noticed);
    if (cause == failures_.end()) return kLostPeer;
    if (WIFEXITED(cause->status)) return WEXITSTATUS(cause->status);
    return std::any_of(failures_.begin(), failures_.end(), noticed) ? kLostPeer : 128 + WTERMSIG(cause->status);
  }

  LaunchOptions options_;
  std::array<bool, 2> terminal_;
  Signals signals_;
  Descriptor port_;
  std::vector<RankProcess> ranks_;
  RankOutput output_;
  Phase phase_ = Phase::running;
  std::optional<Clock::time_point> deadline_;
  std::vector<Failure> failures_;  // in the order in which they were seen
  std::set<int> passed_on_;
  int stopped_ = 0;  // exit code of a rank that did as it was asked
};

}  // namespace

int launch_program(int count, const std::string& program, const std::vector<std::string>& arguments,
                   const LaunchOptions& options) {
  LOOM_CHECK(count >= 1 && count <= kMostProcesses, count, " ranks");
  return Launch(count, options).run(program, arguments);
}

int launch_ranks(int count, const std::vector<std::string>& arguments) {
  // By its name, so that lists of processes show it; a file that was replaced meanwhile is still there as the link.
  const std::string link = "/proc/self/exe";
  std::error_code problem;
  const std::string path = std::filesystem::read_symlink(link, problem).string();
  return launch_program(count, is_file(path) ? path : link, arguments);
}

std::vector<std::string> without_nproc(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {  // what follows are no options
      kept.insert(kept.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (arguments[i] == "--nproc") {
      ++i;
    } else if (!arguments[i].starts_with("--nproc=")) {
      kept.push_back(arguments[i]);
    }
  }
  return kept;
}

std::vector<std::string> arguments_of_ranks() {
  std::string line = read_text("/proc/self/cmdline");  // each word ends with a NUL
  if (!line.empty() && line.back() == '\0') line.pop_back();
  std::vector<std::string> words = split(line, '\0');
  words.erase(words.begin());  // the program
  return without_nproc(words);
}

}  // namespace loom
