// One logger, two sinks: the terminal (ours, plain lines) and an optional file (spdlog's, with time and level). This
// file is in an object library of its own because spdlog does not compile where the LibTorch wheel's fmt headers are
// visible.
#include "core/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/text.h"

namespace loom {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LogLevel::debug;
  if (level == spdlog::level::info) return LogLevel::info;
  return level == spdlog::level::warn ? LogLevel::warn : LogLevel::error;
}

// Plain lines: "warning: ..." and "error: ..." say their level, ordinary ones do not.
class TerminalSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void redirect(std::function<void(LogLevel, const std::string&)> target) {
    std::lock_guard<std::mutex> guard(mutex_);
    redirect_ = std::move(target);
  }
  void before_line(std::function<void()> callback) {
    std::lock_guard<std::mutex> guard(mutex_);
    before_line_ = std::move(callback);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    LogLevel level = from_spdlog(message.level);
    std::string text(message.payload.data(), message.payload.size());
    if (redirect_) return redirect_(level, text);
    if (before_line_) before_line_();
    const char* name = level == LogLevel::error ? "error: " : level == LogLevel::warn ? "warning: " : "";
    text = name + text + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  void flush_() override { std::fflush(stderr); }

 private:
  std::function<void(LogLevel, const std::string&)> redirect_;
  std::function<void()> before_line_;
};

struct Log {
  Log() : logger("omniloom", all) { all->add_sink(terminal); }

  std::mutex mutex;  // of the prefix; the sinks lock themselves
  std::string prefix;
  std::shared_ptr<TerminalSink> terminal = std::make_shared<TerminalSink>();
  std::shared_ptr<spdlog::sinks::dist_sink_mt> all = std::make_shared<spdlog::sinks::dist_sink_mt>();
  spdlog::logger logger;
};

Log& log_state() {
  static Log* state = new Log;  // never destroyed: worker threads may log until the very end
  return *state;
}

}  // namespace

LogLevel parse_log_level(const std::string& name) {
  const std::vector<std::string> names = {"debug", "info", "warn", "error", "off"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<LogLevel>(i + 1);
  }
  throw UserError(
      concat("log level ", quote_text(name), ": expected one of ", join(names, ", "), did_you_mean(name, names)));
}

void set_log_level(LogLevel level) { log_state().logger.set_level(to_spdlog(level)); }

bool log_enabled(LogLevel level) { return log_state().logger.should_log(to_spdlog(level)); }

void set_log_rank(int rank, int world) {
  Log& log = log_state();
  std::lock_guard<std::mutex> guard(log.mutex);
  log.prefix = world > 1 ? concat("rank ", rank, ": ") : "";
}

void set_log_file(const std::string& path) {
  std::shared_ptr<spdlog::sinks::sink> file;
  try {
    file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  } catch (const spdlog::spdlog_ex& error) {
    throw EnvironmentError(concat("cannot write log file ", path, ": ", error.what()));
  }
  file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  log_state().all->add_sink(file);
}

void set_log_before_line(std::function<void()> callback) { log_state().terminal->before_line(std::move(callback)); }

void set_log_sink(std::function<void(LogLevel, const std::string&)> sink) {
  log_state().terminal->redirect(std::move(sink));
}

void log_line(LogLevel level, const std::string& text) {
  Log& log = log_state();
  std::string line;
  {
    std::lock_guard<std::mutex> guard(log.mutex);
    line = log.prefix + text;
  }
  log.logger.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
  log.logger.flush();
}

}  // namespace loom
