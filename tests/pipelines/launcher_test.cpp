// The launcher with shell scripts as ranks: what is shown of them, how a run ends, and who survives whom.
#include "pipelines/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "pipelines/launcher_process.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;
using test::slurp;
using test::TempFolder;

const std::string kShell = "/bin/sh";

struct Outcome {
  int code = -1;
  std::string out, error;
};

Outcome launch(int count, const std::string& script, LaunchOptions options = {}) {
  const TempFolder folder;
  const Descriptor out(::open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const Descriptor error(::open((folder / "error").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  options.out = out.get();
  options.error = error.get();
  Outcome outcome;
  outcome.code = launch_program(count, kShell, {"-c", script}, options);
  outcome.out = slurp(folder / "out");
  outcome.error = slurp(folder / "error");
  return outcome;
}

LaunchOptions impatient() {
  LaunchOptions options;
  options.grace = options.kill_after = 0.1;
  return options;
}

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

using Lines = std::multiset<std::string>;

TEST(Launcher, LinesCarryTheirRankExceptThoseOfRank0) {
  const Outcome outcome = launch(3, "echo out $OMNILOOM_RANK; echo error $OMNILOOM_RANK >&2; printf 'no end'");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(lines_of(outcome.out),
            (Lines{"out 0", "no end", "[rank 1] out 1", "[rank 1] no end", "[rank 2] out 2", "[rank 2] no end"}));
  EXPECT_EQ(lines_of(outcome.error), (Lines{"error 0", "[rank 1] error 1", "[rank 2] error 2"}));
}

TEST(Launcher, EveryRankIsToldItsPlace) {
  const Outcome outcome = launch(2,
                                 "echo $OMNILOOM_RANK/$OMNILOOM_WORLD_SIZE $OMNILOOM_LOCAL_RANK/"
                                 "$OMNILOOM_LOCAL_WORLD_SIZE $OMNILOOM_ADDRESS; echo port $OMNILOOM_PORT");
  const Lines lines = lines_of(outcome.out);
  EXPECT_EQ(lines.count("0/2 0/2 127.0.0.1"), 1U);
  EXPECT_EQ(lines.count("[rank 1] 1/2 1/2 127.0.0.1"), 1U);
  const auto port =
      std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("port "); });
  ASSERT_NE(port, lines.end());
  EXPECT_GT(std::stoi(port->substr(5)), 0);
  EXPECT_EQ(lines.count("[rank 1] " + *port), 1U);
}

TEST(Launcher, RanksReadNothingAndLoseNothing) {
  const Outcome outcome =
      launch(2, "if read line; then exit 9; fi; yes 0123456789 | head -n 50000; yes abcdefghi | head -n 50000 >&2");
  EXPECT_EQ(outcome.code, 0);
  const Lines out = lines_of(outcome.out), error = lines_of(outcome.error);
  EXPECT_EQ(out.count("0123456789"), 50000U);
  EXPECT_EQ(out.count("[rank 1] 0123456789"), 50000U);
  // On stderr what both say is shown once.
  EXPECT_EQ(error.count("abcdefghi") + error.count("[rank 1] abcdefghi"), 50000U);
}

TEST(Launcher, TheFirstFailureEndsAll) {
  const Outcome outcome = launch(3, "[ $OMNILOOM_RANK = 1 ] && exit 3; exec sleep 1000", impatient());
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error, "ranks 0, 2 are ended, 0.1 s after rank 1 has failed\n");
}

TEST(Launcher, ARankThatDoesNotListenIsKilled) {
  const Outcome outcome =
      launch(2, "[ $OMNILOOM_RANK = 0 ] && exit 5; trap '' TERM; while :; do sleep 1000; done", impatient());
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.error, "rank 1 is ended, 0.1 s after rank 0 has failed\n");
}

TEST(Launcher, OthersHaveTimeToSayWhatTheyMiss) {
  const Outcome outcome = launch(2, "[ $OMNILOOM_RANK = 1 ] && exit 5; sleep 0.2; echo rank 1 is lost >&2; exit 4");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.error, "rank 1 is lost\n");
}

TEST(Launcher, ALostPeerIsAConsequence) {
  EXPECT_EQ(launch(2, "[ $OMNILOOM_RANK = 0 ] && exit 4; sleep 0.2; exit 2").code, 2);
  EXPECT_EQ(launch(2, "exit 4").code, 4);
}

TEST(Launcher, DeathByASignal) {
  const Outcome noticed = launch(2, "[ $OMNILOOM_RANK = 1 ] && kill -9 $$; sleep 0.2; exit 4");
  EXPECT_EQ(noticed.code, 4);
  EXPECT_EQ(noticed.error, "rank 1 was killed by signal 9 (Killed)\n");
  const Outcome alone = launch(2, "[ $OMNILOOM_RANK = 1 ] && kill -9 $$; exit 0");
  EXPECT_EQ(alone.code, 137);
}

TEST(Launcher, WhatAllSayIsShownOnce) {
  const Outcome outcome = launch(3, "echo 'my.yaml:3: unknown key' >&2; echo same; exit 2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.error.size(), outcome.error.find("my.yaml:3: unknown key\n") + 23);
  EXPECT_EQ(lines_of(outcome.out), (Lines{"same", "[rank 1] same", "[rank 2] same"}));
}

TEST(Launcher, AProgramThatIsNotThere) {
  EXPECT_EQ(message_of<EnvironmentError>([] { launch_program(2, "/no/such/program", {}); }),
            "cannot start /no/such/program: No such file or directory");
}

// A launcher in a process of its own, whose stdout is read here.
class OwnProcess {
 public:
  OwnProcess(int count, const std::string& script) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_ = Descriptor(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      LaunchOptions options;
      options.out = options.error = ends[1];
      ::_exit(launch_program(count, kShell, {"-c", script}, options));
    }
    ::close(ends[1]);
  }
  // Until so many lines have come; false when there are no more.
  bool wait_for_lines(std::size_t count) {
    char buffer[512];
    while (static_cast<std::size_t>(std::count(text_.begin(), text_.end(), '\n')) < count) {
      const ssize_t got = ::read(reader_.get(), buffer, sizeof buffer);
      if (got <= 0) return false;
      text_.append(buffer, static_cast<std::size_t>(got));
    }
    return true;
  }
  void signal(int number) const { ::kill(pid_, number); }
  int wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return status;
  }
  const std::string& text() const { return text_; }

 private:
  Descriptor reader_;
  pid_t pid_ = -1;
  std::string text_;
};

TEST(Launcher, RequestsToStopReachEveryRankAsOftenAsTheyCome) {
  OwnProcess launcher(2,
                      "n=0; trap 'n=$((n+1)); echo int $n; [ $n = 2 ] && exit 130' INT; echo ready; "
                      "while :; do sleep 0.02; done");
  ASSERT_TRUE(launcher.wait_for_lines(2));
  launcher.signal(SIGINT);
  ASSERT_TRUE(launcher.wait_for_lines(4));
  launcher.signal(SIGINT);
  while (launcher.wait_for_lines(1000)) continue;
  const int status = launcher.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(lines_of(launcher.text()),
            (Lines{"ready", "int 1", "int 2", "[rank 1] ready", "[rank 1] int 1", "[rank 1] int 2"}));
}

TEST(Launcher, ARankThatTakesItsTimeToStopIsWaitedFor) {
  OwnProcess launcher(2,
                      "trap '[ $OMNILOOM_RANK = 0 ] && sleep 0.3 && echo saved; exit 143' TERM; echo ready; "
                      "while :; do sleep 0.02; done");
  ASSERT_TRUE(launcher.wait_for_lines(2));
  launcher.signal(SIGTERM);
  while (launcher.wait_for_lines(1000)) continue;
  const int status = launcher.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 143);
  EXPECT_EQ(lines_of(launcher.text()), (Lines{"ready", "[rank 1] ready", "saved"}));
}

TEST(Launcher, NoRankOutlivesTheLauncher) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // orphans come to this process
  OwnProcess launcher(2, "echo $$; exec sleep 1000");
  ASSERT_TRUE(launcher.wait_for_lines(2));
  launcher.signal(SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(launcher.wait()));
  for (const std::string& line : lines_of(launcher.text())) {
    const pid_t rank = std::stoi(line.substr(line.rfind(' ') + 1));
    int status = 0;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Launcher, Rank0SeesTheTerminalOfTheLauncher) {
  const Descriptor master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.open()) GTEST_SKIP() << "no pseudo-terminals here";
  ASSERT_EQ(::grantpt(master.get()), 0);
  ASSERT_EQ(::unlockpt(master.get()), 0);
  char name[128];
  ASSERT_EQ(::ptsname_r(master.get(), name, sizeof name), 0);
  const Descriptor terminal(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  struct termios modes {};
  ::tcgetattr(terminal.get(), &modes);
  ::cfmakeraw(&modes);
  ::tcsetattr(terminal.get(), TCSANOW, &modes);
  struct winsize size {};
  size.ws_row = 33;
  size.ws_col = 111;
  ASSERT_EQ(::ioctl(terminal.get(), TIOCSWINSZ, &size), 0);

  LaunchOptions options;
  options.out = options.error = terminal.get();
  EXPECT_EQ(launch_program(2, kShell, {"-c", "if [ -t 2 ]; then stty size <&2 >&2; else echo none >&2; fi"}, options),
            0);
  // What was written to a terminal reaches its other side a little later, and in parts.
  std::string text;
  while (std::count(text.begin(), text.end(), '\n') < 2) {
    struct pollfd ready {
      master.get(), POLLIN, 0
    };
    ASSERT_EQ(::poll(&ready, 1, 60000), 1) << text;
    char buffer[512];
    const ssize_t got = ::read(master.get(), buffer, sizeof buffer);
    ASSERT_GT(got, 0);
    text.append(buffer, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(lines_of(text), (Lines{"33 111", "[rank 1] none"}));
}

TEST(Launcher, TheArgumentsOfRanks) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(without_nproc({"train", "r.yaml", "--nproc", "4", "a.b=c"}), (Words{"train", "r.yaml", "a.b=c"}));
  EXPECT_EQ(without_nproc({"--log-level", "debug", "train", "--nproc=4", "r.yaml"}),
            (Words{"--log-level", "debug", "train", "r.yaml"}));
  EXPECT_EQ(without_nproc({"train", "r.yaml", "--nproc", "2", "--", "--nproc"}),
            (Words{"train", "r.yaml", "--", "--nproc"}));
}

TEST(Launcher, AReservedPortIsForThoseWhoAskForIt) {
  int port = 0;
  const Descriptor holder = reserve_port(port);
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const auto bind_to = [&](const Descriptor& server) {
    return ::bind(server.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address);
  };
  const Descriptor careless(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(bind_to(careless), 0);
  const Descriptor server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ASSERT_EQ(::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
  EXPECT_EQ(bind_to(server), 0);
  EXPECT_EQ(::listen(server.get(), 4), 0);
}

}  // namespace
}  // namespace loom
