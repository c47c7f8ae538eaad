#include "pipelines/launcher_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/error.h"
#include "core/base/file.h"

namespace loom {
namespace {

[[noreturn]] void cannot(const std::string& what) {
  const int error = errno;
  throw EnvironmentError(concat("cannot ", what, ": ", errno_text(error)));
}

// Never one of the three standard ones, which a rank's own replace.
Descriptor own(int number, const std::string& what) {
  if (number < 0) cannot(what);
  Descriptor result(number);
  if (number > STDERR_FILENO) return result;
  const int higher = ::fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (higher < 0) cannot(what);
  return Descriptor(higher);
}

struct Channel {
  Descriptor ours, theirs;
};

Channel make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) cannot("make a pipe");
  return {own(ends[0], "make a pipe"), own(ends[1], "make a pipe")};
}

// Not open when this system has no pseudo-terminals to give.
Channel make_terminal(int like) {
  Channel channel;
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0) return channel;
  Descriptor ours = own(master, "open a terminal");
  char name[128];
  if (::grantpt(ours.get()) != 0 || ::unlockpt(ours.get()) != 0 || ::ptsname_r(ours.get(), name, sizeof name) != 0)
    return channel;
  const int slave = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return channel;
  Descriptor theirs = own(slave, "open a terminal");
  struct termios modes {};
  if (::tcgetattr(theirs.get(), &modes) != 0) return channel;
  ::cfmakeraw(&modes);  // every byte as it is: the real terminal does the rest
  if (::tcsetattr(theirs.get(), TCSANOW, &modes) != 0) return channel;
  copy_terminal_size(like, ours.get());
  channel.ours = std::move(ours);
  channel.theirs = std::move(theirs);
  return channel;
}

Channel make_channel(int terminal) {
  Channel channel;
  if (terminal >= 0) channel = make_terminal(terminal);
  if (!channel.ours.open()) channel = make_pipe();
  if (::fcntl(channel.ours.get(), F_SETFL, O_NONBLOCK) != 0) cannot("read from a rank");
  return channel;
}

std::vector<std::string> environment_of(const RankCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(command.variables.begin(), command.variables.end(),
                                      [&](const auto& variable) { return variable.first == name; });
    if (!replaced) all.push_back(text);
  }
  for (const auto& [name, value] : command.variables) all.push_back(concat(name, "=", value));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

void Descriptor::reset() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

void copy_terminal_size(int from, int to) {
  struct winsize size {};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

RankProcess start_rank(const RankCommand& command) {
  Channel out = make_channel(command.terminals[0]), error = make_channel(command.terminals[1]);
  Channel trouble = make_pipe();  // closed by a successful exec
  const Descriptor nothing = own(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open /dev/null");
  std::vector<std::string> words = command.arguments, variables = environment_of(command);
  words.insert(words.begin(), "omniloom");
  const std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) cannot("start a rank");
  if (pid == 0) {
    // Only async-signal-safe calls from here to exec.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(127);  // it died before the line above
    ::dup2(nothing.get(), STDIN_FILENO);
    ::dup2(out.theirs.get(), STDOUT_FILENO);
    ::dup2(error.theirs.get(), STDERR_FILENO);
    ::sigprocmask(SIG_SETMASK, &command.mask, nullptr);
    ::execve(command.program.c_str(), arguments.data(), environment.data());
    const int reason = errno;
    if (::write(trouble.theirs.get(), &reason, sizeof reason) < 0) ::_exit(126);
    ::_exit(127);
  }
  ::setpgid(pid, pid);  // whoever of the two is first; a later kill of the group must find it
  trouble.theirs.reset();
  int reason = 0;
  ssize_t got = 0;
  do got = ::read(trouble.ours.get(), &reason, sizeof reason);
  while (got < 0 && errno == EINTR);
  if (got > 0) {
    ::waitpid(pid, nullptr, 0);
    throw EnvironmentError(concat("cannot start ", command.program, ": ", errno_text(reason)));
  }
  RankProcess process;
  process.pid = pid;
  process.streams[0] = std::move(out.ours);
  process.streams[1] = std::move(error.ours);
  return process;
}

Descriptor reserve_port(int& port) {
  Descriptor holder = own(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "open a socket");
  const int yes = 1;
  struct sockaddr_in address {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<struct sockaddr*>(&address);
  if (::setsockopt(holder.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(holder.get(), plain, size) != 0 || ::getsockname(holder.get(), plain, &size) != 0)
    cannot("find a free port of the loopback interface");
  port = ntohs(address.sin_port);
  return holder;
}

}  // namespace loom
