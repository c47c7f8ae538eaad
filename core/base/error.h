#pragma once
// Whose fault is it? The class of an exception answers, its text carries the values, and main turns it into an exit
// code (design: 2 user, 3 plugin, 4 lost peer, 5 environment, 70 our bug). Nothing below main calls exit or abort.
#include <sstream>
#include <stdexcept>
#include <string>

namespace loom {

class Error : public std::runtime_error {
 public:
  Error(const std::string& what, int exit_code) : std::runtime_error(what), exit_code_(exit_code) {}
  ~Error() override;
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// A mistake in a recipe, in data or on the command line: one line, what and where and what was expected.
class UserError : public Error {
 public:
  explicit UserError(const std::string& what) : Error(what, 2) {}
  ~UserError() override;
};

// A plugin that cannot be loaded, or that failed while running.
class PluginError : public Error {
 public:
  explicit PluginError(const std::string& what) : Error(what, 3) {}
  ~PluginError() override;
};

// A peer that is lost, late or disagrees.
class CommError : public Error {
 public:
  explicit CommError(const std::string& what) : Error(what, 4) {}
  ~CommError() override;
};

// Disk full, no memory, a path that cannot be created.
class EnvironmentError : public Error {
 public:
  explicit EnvironmentError(const std::string& what) : Error(what, 5) {}
  ~EnvironmentError() override;
};

// Our bug. The text names file and line.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& what) : Error(what, 70) {}
  ~InternalError() override;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] void throw_internal(const char* file, int line, const char* condition, const std::string& message);

}  // namespace loom

// Our own assumption; never reachable by user input.
#define LOOM_CHECK(condition, ...)                                                                         \
  do {                                                                                                     \
    if (!(condition)) ::loom::throw_internal(__FILE__, __LINE__, #condition, ::loom::concat(__VA_ARGS__)); \
  } while (false)

// Something the user can mend.
#define LOOM_CHECK_USER(condition, ...)                                     \
  do {                                                                      \
    if (!(condition)) throw ::loom::UserError(::loom::concat(__VA_ARGS__)); \
  } while (false)
