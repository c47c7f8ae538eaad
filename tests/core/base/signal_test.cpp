// Signals, each case in a child process: a first request sets a flag, a second Ctrl-C ends the process at once.
#include "core/base/signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace loom {
namespace {

struct Outcome {
  int status = -1;
  std::string error_text;
};

template <class Body>
Outcome in_child(Body body) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe_ends[1], STDERR_FILENO);
    install_signal_handlers();
    ::_exit(body());
  }
  ::close(pipe_ends[1]);
  Outcome outcome;
  char buffer[256];
  for (ssize_t got = ::read(pipe_ends[0], buffer, sizeof buffer); got > 0;
       got = ::read(pipe_ends[0], buffer, sizeof buffer)) {
    outcome.error_text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(pipe_ends[0]);
  EXPECT_EQ(::waitpid(child, &outcome.status, 0), child);
  return outcome;
}

TEST(Signal, TheFirstRequestSetsAFlag) {
  Outcome outcome = in_child([] {
    if (stop_requested() || stop_exit_code() != 0) return 1;
    ::raise(SIGINT);
    if (!stop_requested()) return 2;
    int code = stop_exit_code();
    clear_stop_request();
    return stop_requested() ? 3 : code;
  });
  ASSERT_TRUE(WIFEXITED(outcome.status));
  EXPECT_EQ(WEXITSTATUS(outcome.status), 130);
  EXPECT_EQ(outcome.error_text, "");
}

TEST(Signal, SigtermIs143AndMayComeTwice) {
  Outcome outcome = in_child([] {
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    return stop_requested() ? stop_exit_code() : 1;
  });
  ASSERT_TRUE(WIFEXITED(outcome.status));
  EXPECT_EQ(WEXITSTATUS(outcome.status), 143);
}

TEST(Signal, ASecondInterruptEndsAtOnce) {
  for (int first : {SIGINT, SIGTERM}) {
    Outcome outcome = in_child([first] {
      ::raise(first);
      ::raise(SIGINT);
      return 1;
    });
    ASSERT_TRUE(WIFEXITED(outcome.status));
    EXPECT_EQ(WEXITSTATUS(outcome.status), 130);
    EXPECT_EQ(outcome.error_text, "\ninterrupted again: stopped at once, without saving\n");
  }
}

}  // namespace
}  // namespace loom
