// Texts of a plain file end where a line begins with a word, not at every line: what stands between words, line ends
// and indents, is learned too.
#include "pipelines/tokenizer_texts.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/data/source.h"
#include "core/data/source_options.h"
#include "pipelines/job.h"
#include "pipelines/path_source.h"
#include "pipelines/read_ahead.h"

namespace loom {
namespace {

constexpr size_t kTextBlock = 1 << 16;

bool ends_in(const std::string& path, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) { return path.ends_with(ending); });
}

// What a sample's words are in the stream that a model sees: a role stands on a line of its own.
void words_of(const RawSample& sample, std::vector<std::string>& texts) {
  for (const SamplePart& part : sample.parts) {
    if (part.kind == SamplePart::Kind::text) texts.push_back(part.text);
    if (part.kind == SamplePart::Kind::turn_begin) texts.push_back(part.text + "\n");
  }
}

struct Words {
  std::vector<std::string> texts{};
  std::string reason{};  // why there are none
};

class Visitor {
 public:
  Visitor(const TextInputs& inputs, ThreadPool& pool, const std::function<void(std::string_view)>& use,
          const std::function<void(int64_t, int64_t, const char*)>& progress)
      : inputs_(inputs), pool_(pool), use_(use), progress_(progress) {}

  TextsRead run() {
    // All that can be wrong with a name is told before the first file is read.
    std::vector<std::shared_ptr<Source>> sources;
    std::vector<std::string> texts;
    for (const std::string& path : inputs_.paths) {
      if (ends_in(path, {".yaml", ".yml"})) {
        for (auto& source : read_job(path, inputs_.overrides).sources("train")) sources.push_back(std::move(source));
      } else if (is_folder(path) || ends_in(path, {".jsonl", ".json", ".ndjson"})) {
        sources.push_back(source_of_path(path, static_cast<int>(sources.size())));
      } else {
        LOOM_CHECK_USER(std::filesystem::exists(path), path, ": no such file", near_path(path));
        texts.push_back(path);
      }
    }
    for (const auto& source : sources) total_ += share(source->size());
    for (const auto& source : sources) read_source(*source);
    done_ = total_ = 0;
    for (const std::string& path : texts) total_ += static_cast<int64_t>(std::filesystem::file_size(path));
    for (const std::string& path : texts) read_lines(path);
    return read_;
  }

 private:
  int64_t share(int64_t size) const { return inputs_.samples > 0 ? std::min(inputs_.samples, size) : size; }

  // Samples spread evenly over the source.
  void read_source(const Source& source) {
    const int64_t size = source.size(), count = share(size), ahead = 64 * pool_.size();
    const auto index = [&](int64_t i) {
      return count == size ? i : static_cast<int64_t>(i * (static_cast<double>(size) / static_cast<double>(count)));
    };
    const auto make = [&](int64_t i) {
      Words out;
      try {
        words_of(source.read_without_media(index(i)), out.texts);
      } catch (const UserError& error) {
        out.reason = error.what();
      } catch (const EnvironmentError& error) {
        out.reason = error.what();
      }
      return out;
    };
    read_ahead(&pool_, count, ahead, make, [&](int64_t, const Words& words) {
      for (const std::string& text : words.texts) use_(text);
      if (!words.reason.empty() && read_.unreadable++ == 0) read_.first_reason = words.reason;
      if (++done_ % 256 == 0 || done_ == total_) progress_(done_, total_, "sample");
    });
  }

  void read_lines(const std::string& path) {
    LOOM_CHECK_USER(!std::filesystem::is_directory(path), path, ": is a folder");
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    LOOM_CHECK_USER(file.is_open(), path, ": cannot be read: ", errno_text(errno));
    std::string block, line;
    for (int64_t count = 0; !stop_requested() && (inputs_.samples == 0 || count < inputs_.samples); ++count) {
      if (!std::getline(file, line)) break;
      if (!file.eof()) line += '\n';
      const bool word = !line.empty() && static_cast<unsigned char>(line[0]) > ' ';
      if (word && block.size() >= kTextBlock) {
        use_(block);
        block.clear();
      }
      block += line;
      done_ += static_cast<int64_t>(line.size());
      if (count % 4096 == 4095) progress_(done_, total_, "byte");
    }
    LOOM_CHECK_USER(!file.bad(), path, ": cannot be read");
    if (!block.empty()) use_(block);
  }

  const TextInputs& inputs_;
  ThreadPool& pool_;
  const std::function<void(std::string_view)>& use_;
  const std::function<void(int64_t, int64_t, const char*)>& progress_;
  int64_t done_ = 0, total_ = 0;
  TextsRead read_;
};

}  // namespace

TextsRead visit_texts(const TextInputs& inputs, ThreadPool& pool, const std::function<void(std::string_view)>& use,
                      const std::function<void(int64_t, int64_t, const char*)>& progress) {
  return Visitor(inputs, pool, use, progress).run();
}

}  // namespace loom
