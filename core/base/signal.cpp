// Only async-signal-safe calls in the handler: a lock-free atomic, write, _exit.
#include "core/base/signal.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "core/base/error.h"

namespace loom {
namespace {

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void say(const char* text, unsigned long size) {
  if (::write(STDERR_FILENO, text, size) < 0) return;  // nobody is listening
}

void on_signal(int number) {
  int saved_errno = errno;
  int expected = 0;
  if (!stop_signal.compare_exchange_strong(expected, number) && number == SIGINT) {
    static const char text[] = "\ninterrupted again: stopped at once, without saving\n";
    say(text, sizeof text - 1);
    ::_exit(130);
  }
  errno = saved_errno;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // reads and writes go on undisturbed
  for (int number : {SIGINT, SIGTERM}) {
    LOOM_CHECK(::sigaction(number, &action, nullptr) == 0, "sigaction for signal ", number);
  }
}

bool stop_requested() { return stop_signal.load() != 0; }

int stop_exit_code() {
  int number = stop_signal.load();
  return number == 0 ? 0 : 128 + number;
}

void clear_stop_request() { stop_signal.store(0); }

}  // namespace loom
