// Input is read with poll and read, since a signal must end the wait for a line but not lose what was typed before it.
#include "pipelines/generate_chat.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/data/batch_builder.h"

namespace loom {
namespace {

const char* const kHelp =
    "/picture PATH  add a picture to the next message\n"
    "/reset         forget the conversation\n"
    "/quit          end (also Ctrl-D); Ctrl-C stops an answer\n";
const std::vector<std::string> kCommands = {"/picture", "/reset", "/quit", "/help"};

enum class Got { line = 1, end, interrupted };

class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}

  Got next(std::string& line) {
    for (;;) {
      if (stop_requested()) return Got::interrupted;
      const size_t end = waiting_.find('\n');
      if (end != std::string::npos || (closed_ && !waiting_.empty())) {
        line = waiting_.substr(0, end);
        waiting_.erase(0, end == std::string::npos ? end : end + 1);
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return Got::line;
      }
      if (closed_) return Got::end;
      fill();
    }
  }

 private:
  void fill() {
    pollfd ready{descriptor_, POLLIN, 0};
    if (::poll(&ready, 1, -1) < 0) {
      if (errno != EINTR) throw_error();
      return;
    }
    char bytes[4096];
    const ssize_t count = ::read(descriptor_, bytes, sizeof bytes);
    if (count < 0 && errno != EINTR) throw_error();
    if (count == 0) closed_ = true;
    if (count > 0) waiting_.append(bytes, static_cast<size_t>(count));
  }
  [[noreturn]] static void throw_error() { throw EnvironmentError("cannot read the next line"); }

  int descriptor_;
  bool closed_ = false;
  std::string waiting_;
};

class Chat {
 public:
  Chat(const Job& job, AskOptions options, int input)
      : job_(job), options_(std::move(options)), reader_(input), terminal_(::isatty(input) == 1) {
    reset();
  }

  int run() {
    if (terminal_)
      note(options_.chat ? "A prompt per line; /help for more." : "Text to continue, a line each; /help for more.");
    std::string line;
    for (;;) {
      sign();
      const Got got = reader_.next(line);
      if (got == Got::interrupted) return finish(stop_exit_code());
      if (got == Got::end) return finish(0);
      if (const bool go_on = take(line); !go_on) return 0;
      if (stop_exit_code() != 0 && (!terminal_ || stop_exit_code() != kInterrupted)) return stop_exit_code();
      clear_stop_request();
    }
  }

 private:
  static constexpr int kInterrupted = 130;

  void sign() const {
    if (!terminal_) return;
    std::fputs("> ", stdout);
    std::fflush(stdout);
  }
  int finish(int code) const {
    if (terminal_) std::fputs("\n", stdout);
    return code;
  }
  static void note(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

  void reset() {
    talk_ = RawSample();
    if (options_.chat && !options_.system.empty()) add_turn(talk_, "system", {}, options_.system);
    pictures_.clear();
  }

  // A line that was typed; false to end. A mistake is told, and the talk goes on as if it had not been made.
  bool take(const std::string& line) {
    try {
      const std::string_view text = trim(line);
      if (text.size() > 1 && text[0] == '/' && text[1] != '/') return command(std::string(text));
      if (!text.empty() || !pictures_.empty()) answer(text.rfind("//", 0) == 0 ? std::string(text.substr(1)) : line);
    } catch (const UserError& problem) {
      note(problem.what());
    }
    return true;
  }

  bool command(const std::string& text) {
    const size_t space = text.find_first_of(" \t");
    const std::string name = text.substr(0, space);
    const std::string rest(space == std::string::npos ? "" : trim(text.substr(space)));
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/help") {
      std::fputs(kHelp, stderr);
    } else if (name == "/reset") {
      reset();
      note("started anew");
    } else if (name == "/picture") {
      LOOM_CHECK_USER(!rest.empty(), "/picture: expected the path of a picture: /picture door.jpg");
      pictures_.push_back(open_picture(rest, options_));
      const MediaInfo& info = pictures_.back().info;
      note(concat(rest, ": ", info.width, "x", info.height, " pixels, with the next message"));
    } else {
      throw UserError(concat(name, ": no such command", did_you_mean(name, kCommands),
                             " (there is: ", join(kCommands, ", "), "; //... is a text that begins with /)"));
    }
    return true;
  }

  void answer(const std::string& text) {
    RawSample next = talk_;
    next.name = concat("message ", ++messages_);
    next.key = messages_;
    const std::vector<Media> pictures = pictures_;
    if (options_.chat) {
      add_turn(next, "user", pictures, text);
    } else {
      next.parts = make_question("", pictures, text, options_).parts;
    }
    RawSample open = next;
    if (options_.chat) open.parts.push_back(SamplePart::make_turn_begin("assistant"));
    const PreparedSample sample = prepare_question(job_, open);
    pictures_.clear();
    const std::string said = generate_answer(sample);
    if (!options_.chat) return;
    add_turn(next, "assistant", {}, said);
    talk_ = std::move(next);
  }

  std::string generate_answer(const PreparedSample& sample) {
    std::vector<int64_t> tokens;
    std::string text;
    size_t shown = 0;
    const auto show = [&](size_t end) {
      const std::string part = clean_text(std::string_view(text).substr(shown, end - shown));
      std::fputs(part.c_str(), stdout);
      std::fflush(stdout);
      shown = end;
    };
    GenerateOptions how = options_.generate;
    how.on_token = [&](int64_t, int64_t token) {
      tokens.push_back(token);
      text = job_.tokenizer->decode(tokens);
      if (const size_t whole = whole_characters(text); whole > shown) show(whole);
      return !stop_requested();
    };
    generate(*job_.model, build_prompt_batch({&sample}, *job_.model), how);
    if (text.size() > shown) show(text.size());
    std::fputs(stop_requested() ? " ...\n" : "\n", stdout);
    std::fflush(stdout);
    return text;
  }

  const Job& job_;
  AskOptions options_;
  LineReader reader_;
  bool terminal_;
  RawSample talk_;               // turns so far
  std::vector<Media> pictures_;  // of the next message
  uint64_t messages_ = 0;
};

}  // namespace

int generate_chat(const Job& job, AskOptions options, int input) { return Chat(job, std::move(options), input).run(); }

}  // namespace loom
