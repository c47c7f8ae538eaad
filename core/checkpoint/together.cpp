// Ranks exchange reports in rounds until nobody is at work any more. A report of a rank at work comes at least once per
// pause, whatever the disk does, so the communicator's timeout is about the rank and not about its disk.
#include "core/checkpoint/together.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <new>

#include "core/base/error.h"
#include "core/comm/texts.h"

namespace loom {
namespace {

constexpr char kDone = '+', kFailed = '!', kWorking = '.', kTold = '=';
constexpr double kLongestPause = 0.5;  // seconds

std::string failure(int code, const std::string& words) { return concat(kFailed, code, ' ', words); }

std::string attempt(const std::function<std::string()>& work) {
  try {
    return kDone + work();
  } catch (const Error& error) {
    return failure(error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return failure(EnvironmentError("").exit_code(), "out of memory");
  } catch (const std::exception& error) {
    return failure(InternalError("").exit_code(), error.what());
  }
}

[[noreturn]] void throw_failure(const std::string& report, const std::string& prefix) {
  const size_t space = report.find(' ');
  const int code = std::stoi(report.substr(1, space - 1));
  const std::string words = prefix + report.substr(space + 1);
  switch (code) {
    case 2:
      throw UserError(words);
    case 3:
      throw PluginError(words);
    case 4:
      throw CommError(words);
    case 5:
      throw EnvironmentError(words);
    default:
      throw InternalError(words);
  }
}

}  // namespace

std::vector<std::string> together(Communicator& comm, const std::string& what,
                                  const std::function<std::string()>& work) {
  if (comm.world() == 1) return {work()};
  std::future<std::string> running = std::async(std::launch::async, [&] { return attempt(work); });
  const double timeout = comm.timeout();
  const std::chrono::duration<double> pause(timeout > 0 ? std::min(timeout / 4, kLongestPause) : kLongestPause);
  std::vector<std::string> reports(static_cast<size_t>(comm.world()));
  bool working = true;
  std::string mine;
  while (working) {
    std::string report(1, kTold);
    if (running.valid()) {
      report = kWorking;
      if (running.wait_for(pause) == std::future_status::ready) report = mine = running.get();
    }
    std::vector<std::string> round;
    try {
      round = exchange_texts(comm, what, report);
    } catch (const CommError&) {
      if (!mine.empty() && mine[0] == kFailed) throw_failure(mine, "");  // the better cause
      throw;
    }
    working = false;
    for (size_t rank = 0; rank < round.size(); ++rank) {
      if (round[rank][0] == kWorking) working = true;
      if (round[rank][0] == kDone || round[rank][0] == kFailed) reports[rank] = round[rank];
    }
  }
  // The same mistake on all ranks is told like that of a single one.
  const bool all_alike = std::all_of(reports.begin(), reports.end(), [&](const auto& r) { return r == reports[0]; });
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank][0] == kFailed) throw_failure(reports[rank], all_alike ? "" : concat("rank ", rank, ": "));
  }
  for (std::string& report : reports) report.erase(0, 1);
  return reports;
}

}  // namespace loom
