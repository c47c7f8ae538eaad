#pragma once
// Lines for the person at the terminal, on stderr, with the rank in front when there are several. The header names no
// logging library: spdlog is a private matter of log.cpp, which is compiled out of sight of LibTorch's own copy of fmt.
#include <functional>
#include <string>

#include "core/base/error.h"

namespace loom {

enum class LogLevel { debug = 1, info, warn, error, off };

// UserError with the nearest name for an unknown one.
LogLevel parse_log_level(const std::string& name);
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
// Prefix "rank 2: " when world > 1.
void set_log_rank(int rank, int world);
// Also append every line, with time and level, to a file. EnvironmentError when it cannot be opened.
void set_log_file(const std::string& path);
// Called before a line reaches the terminal, so that a progress line can step aside. Empty = nothing.
void set_log_before_line(std::function<void()> callback);
// Takes the lines instead of stderr. Empty = stderr again. For tests.
void set_log_sink(std::function<void(LogLevel, const std::string&)> sink);

void log_line(LogLevel level, const std::string& text);

template <class... Parts>
void log_debug(const Parts&... parts) {
  if (log_enabled(LogLevel::debug)) log_line(LogLevel::debug, concat(parts...));
}
template <class... Parts>
void log_info(const Parts&... parts) {
  if (log_enabled(LogLevel::info)) log_line(LogLevel::info, concat(parts...));
}
template <class... Parts>
void log_warn(const Parts&... parts) {
  if (log_enabled(LogLevel::warn)) log_line(LogLevel::warn, concat(parts...));
}
template <class... Parts>
void log_error(const Parts&... parts) {
  if (log_enabled(LogLevel::error)) log_line(LogLevel::error, concat(parts...));
}

}  // namespace loom
