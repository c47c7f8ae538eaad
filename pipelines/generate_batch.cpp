#include "pipelines/generate_batch.h"

#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/data/chat_json.h"
#include "core/data/chat_media.h"
#include "core/data/chat_messages.h"
#include "core/data/text_lines.h"
#include "core/observe/progress.h"
#include "pipelines/json_lines.h"
#include "pipelines/passes.h"
#include "pipelines/read_ahead.h"

namespace loom {
namespace {

using Line = JsonLines::Line;

constexpr size_t kMostWaiting = 250;
constexpr int64_t kBudgetsPerChunk = 4;

struct Asked {
  Line line;  // all but the answer; or the error
  PreparedSample sample;
  bool failed = false;
};

std::string text_at(const Json& object, const char* key) {
  const Json* value = given(object, key);
  if (value == nullptr) return "";
  LOOM_CHECK_USER(value->is_string(), key, ": expected a text, found ", json_kind(*value));
  return value->get<std::string>();
}

// {"prompt": ..., "image": ...}: the pictures come first.
RawSample read_prompt(const Json& object, const std::string& name, const std::string& root, const AskOptions& options) {
  const Json *one = given(object, "image"), *many = given(object, "images");
  LOOM_CHECK_USER(one == nullptr || many == nullptr, "image and images: both are given; expected one of them");
  const Json* list = one != nullptr ? one : many;
  std::vector<Media> media;
  const auto open = [&](const Json& value, const std::string& path) {
    LOOM_CHECK_USER(!options.modality.empty(), path, ": the model takes no pictures");
    media.push_back(open_media(media_reference(value, path), root, options.modality, options.pictures));
  };
  const std::string key = one != nullptr ? "image" : "images";
  for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i)
    open((*list)[i], concat(key, ".", i));
  if (list != nullptr && !list->is_array()) open(*list, key);
  AskOptions own = options;
  if (const std::string system = text_at(object, "system"); !system.empty()) own.system = system;
  return make_question(name, std::move(media), text_at(object, "prompt"), own);
}

RawSample read_chat(const std::string& text, const std::string& name, const std::string& root,
                    const AskOptions& options, std::string& truth) {
  RawSample out;
  out.name = name;
  out.key = hash_name(name);
  out.parts = parse_chat(text);
  for (SamplePart& part : out.parts) {
    if (part.kind != SamplePart::Kind::media) continue;
    LOOM_CHECK_USER(!options.modality.empty(), "the model takes no pictures");
    part.media = open_media(part.text, root, options.modality, options.pictures);
    part.text.clear();
  }
  truth = cut_answer(out);
  const bool turns = !out.parts.empty() && out.parts.front().kind == SamplePart::Kind::turn_begin;
  if (turns && !options.system.empty() && out.parts.front().text != "system") {
    RawSample head;
    add_turn(head, "system", {}, options.system);
    out.parts.insert(out.parts.begin(), head.parts.begin(), head.parts.end());
  }
  return out;
}

Asked read_line(const Job& job, const AskOptions& options, const TextLines& lines, const std::string& input,
                int64_t index) {
  Asked out;
  const std::string root = std::filesystem::path(input).parent_path().string();
  const std::string name = concat(input, ":", lines.line(index));
  out.line["name"] = name;
  try {
    const std::string text = lines.read(index);
    const Json object = parse_sample(text);
    const bool prompt = object.is_object() && given(object, "prompt") != nullptr;
    if (object.is_object() && object.contains("id")) out.line["id"] = object["id"];
    std::string truth;
    const RawSample raw =
        prompt ? read_prompt(object, name, root, options) : read_chat(text, name, root, options, truth);
    out.line["prompt"] = prompt_text(raw);
    if (!truth.empty()) out.line["truth"] = truth;
    out.sample = prepare_question(job, raw);
  } catch (const UserError& problem) {
    out.failed = true;
    std::string what = problem.what();
    if (what.rfind(name + ": ", 0) == 0) what.erase(0, name.size() + 2);
    out.line["error"] = what;
  }
  return out;
}

class Batch {
 public:
  Batch(const Job& job, const AskOptions& options, const std::string& output)
      : job_(job), options_(options), out_(output), budget_(job.preparer->options().budget) {}

  void take(Asked&& asked) {
    tokens_ += asked.sample.verdict.tokens;
    waiting_.push_back(std::move(asked));
    if (waiting_.size() >= kMostWaiting || tokens_ >= kBudgetsPerChunk * budget_) flush();
  }

  void flush() {
    std::vector<const PreparedSample*> samples;
    for (const Asked& asked : waiting_) {
      if (!asked.failed) samples.push_back(&asked.sample);
    }
    GenerateOptions how = options_.generate;
    how.on_token = [](int64_t, int64_t) { return !stop_requested(); };
    std::vector<std::vector<int64_t>> answers;
    if (!samples.empty()) answers = generate_in_passes(*job_.model, samples, how, budget_);
    if (stop_requested()) return;  // what is cut short is not written
    size_t next = 0;
    for (Asked& asked : waiting_) {
      failed += asked.failed ? 1 : 0;
      ++done;
      if (asked.failed && first_error.empty())
        first_error = asked.line["name"].get<std::string>() + ": " + asked.line["error"].get<std::string>();
      if (!asked.failed) asked.line["output"] = job_.tokenizer->decode(answers[next++]);
      out_.write(asked.line);
    }
    out_.flush();
    waiting_.clear();
    tokens_ = 0;
  }

  int64_t done = 0, failed = 0;
  std::string first_error;

 private:
  const Job& job_;
  const AskOptions& options_;
  JsonLines out_;
  int64_t budget_, tokens_ = 0;
  std::vector<Asked> waiting_;
};

}  // namespace

int generate_batch(const Job& job, const AskOptions& options, const std::string& input, const std::string& output) {
  const TextLines lines(input, "--input: ");
  LOOM_CHECK_USER(lines.size() > 0, input, ": holds no samples");
  std::error_code none;
  LOOM_CHECK_USER(output.empty() || !std::filesystem::equivalent(input, output, none), output,
                  ": --output is the file of --input; expected another one");
  Batch batch(job, options, output);
  Progress progress(stderr, ProgressPolicy::detect(stderr));
  ProgressState state;
  state.unit = "answer";
  state.steps = lines.size();
  read_ahead(
      job.pool.get(), lines.size(), 2 * job.pool->size(),
      [&](int64_t i) { return read_line(job, options, lines, input, i); },
      [&](int64_t, Asked&& asked) {
        batch.take(std::move(asked));
        state.step = batch.done;
        if (batch.done > 0) progress.update(state);
      });
  if (!stop_requested()) batch.flush();
  state.step = batch.done;
  progress.update(state);
  progress.finish();
  if (batch.failed > 0)
    log_warn(with_commas(batch.failed), " of ", with_commas(batch.done),
             " could not be answered; the first: ", batch.first_error);
  if (stop_requested()) return stop_exit_code();
  return batch.failed == batch.done ? 2 : 0;
}

}  // namespace loom
