// Log lines as they reach a person and a file.
#include "core/base/log.h"

#include <vector>

#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::message_of;
using test::slurp;
using test::TempFolder;

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, const std::string& text) {
      lines_.push_back(std::to_string(static_cast<int>(level)) + " " + text);
    });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_rank(0, 1);
    set_log_level(LogLevel::info);
    set_log_before_line({});
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, LevelsFilterAndRankLeads) {
  log_debug("hidden");
  log_info("step ", 3, ": {} stays as it is");
  set_log_rank(2, 4);
  log_warn("slow");
  set_log_level(LogLevel::error);
  log_warn("hidden");
  log_error("gone");
  set_log_level(LogLevel::off);
  log_error("hidden");
  set_log_level(LogLevel::debug);
  log_debug("shown");
  EXPECT_EQ(lines_, (std::vector<std::string>{"2 step 3: {} stays as it is", "3 rank 2: slow", "4 rank 2: gone",
                                              "1 rank 2: shown"}));
}

TEST_F(LogTest, TheTerminalGetsPlainLinesAfterTheProgressSteppedAside) {
  set_log_sink({});
  int asides = 0;
  set_log_before_line([&asides] { ++asides; });
  ::testing::internal::CaptureStderr();
  log_info("plain");
  log_warn("careful");
  log_error("bad");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "plain\nwarning: careful\nerror: bad\n");
  EXPECT_EQ(asides, 3);
}

TEST_F(LogTest, AFileGetsEveryLineWithItsLevel) {
  TempFolder folder;
  set_log_file(folder / "log.txt");
  log_warn("kept");
  std::string text = slurp(folder / "log.txt");
  EXPECT_NE(text.find(" warning kept\n"), std::string::npos) << text;
  EXPECT_EQ(lines_, std::vector<std::string>{"3 kept"});
  folder.write("file", "");
  std::string message = message_of<EnvironmentError>([&] { set_log_file(folder / "file/log.txt"); });
  EXPECT_TRUE(message.starts_with("cannot write log file " + folder.path() + "/file/log.txt: ")) << message;
}

TEST_F(LogTest, LevelNames) {
  EXPECT_EQ(parse_log_level("warn"), LogLevel::warn);
  EXPECT_EQ(message_of<UserError>([] { parse_log_level("wran"); }),
            "log level 'wran': expected one of debug, info, warn, error, off; did you mean 'warn'?");
}

}  // namespace
}  // namespace loom
