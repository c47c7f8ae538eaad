#pragma once
// One rank as a process: a fork that does nothing but what is allowed between fork and exec. What it writes comes back
// through pipes, or through a pseudo-terminal where the launcher itself has a terminal, so that a rank draws its
// progress as it would alone. A rank leads a process group of its own, hence Ctrl-C reaches it only through the
// launcher, and the kernel kills it when the launcher dies.
#include <signal.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace loom {

// An open file of this process.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  void reset();

 private:
  int number_;
};

struct RankCommand {
  std::string program;  // a path
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> variables;  // beside those of this process
  std::array<int, 2> terminals{-1, -1};                        // stdout and stderr: those of the launcher, -1 = none
  sigset_t mask{};                                             // of blocked signals, for the rank
};

struct RankProcess {
  pid_t pid = -1;
  std::array<Descriptor, 2> streams;  // stdout and stderr, never blocking; closed at their end
};

// EnvironmentError when the program cannot be started.
RankProcess start_rank(const RankCommand& command);

// Gives a rank's pseudo-terminal the size of this one.
void copy_terminal_size(int from, int to);

// Bound to a free port of the loopback interface. As long as it is open the system gives that port to nobody who does
// not ask for it; a server that allows reuse of addresses, such as rank 0's store, can have it.
Descriptor reserve_port(int& port);

}  // namespace loom
