// `omniloom generate`: what a trained run writes, about pictures and prompts. Its three forms: pictures on the command
// line (here), a file of prompts (generate_batch) and a conversation (generate_chat).
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/base/signal.h"
#include "pipelines/cli.h"
#include "pipelines/generate_batch.h"
#include "pipelines/generate_chat.h"
#include "pipelines/passes.h"
#include "pipelines/path_source.h"
#include "pipelines/run_folder.h"

namespace loom {
namespace {

constexpr size_t kPicturesAtOnce = 250;

struct GenerateFlags {
  std::string run, prompt, system, modality, input, output;
  std::vector<std::string> pictures;
  int64_t step = 0, max_new_tokens = 0, top_k = 0;
  uint64_t seed = 0;
  double temperature = 0, top_p = 1;
  bool together = false, interactive = false, chat = false, plain = false;
};

// Every mistake that can be seen without the run.
void check(const GenerateFlags& flags) {
  LOOM_CHECK_USER(flags.temperature >= 0 && flags.temperature <= 100, "--temperature ", flags.temperature,
                  ": expected 0 (the most likely token) to 100");
  LOOM_CHECK_USER(flags.top_p > 0 && flags.top_p <= 1, "--top-p ", flags.top_p, ": expected more than 0, at most 1");
  LOOM_CHECK_USER(flags.top_k >= 0, "--top-k ", flags.top_k, ": expected a number of tokens, or 0 for all");
  LOOM_CHECK_USER(flags.max_new_tokens >= 0, "--max-new-tokens ", flags.max_new_tokens, ": expected at least 1");
  LOOM_CHECK_USER(!flags.chat || !flags.plain, "--chat and --plain: expected one of them");
  LOOM_CHECK_USER(!flags.interactive || flags.input.empty(), "--interactive and --input: expected one of them");
  LOOM_CHECK_USER(flags.output.empty() || !flags.input.empty(), "--output goes with --input");
  LOOM_CHECK_USER((flags.input.empty() && !flags.interactive) || (flags.pictures.empty() && flags.prompt.empty()),
                  flags.interactive ? "--interactive" : "--input",
                  " goes without pictures and --prompt on the command line");
  const bool sampled = flags.top_p < 1 || flags.top_k > 0;
  if (sampled && flags.temperature <= 0)
    log_warn("--top-p and --top-k change nothing without --temperature: the most likely token is taken");
}

AskOptions ask_options(const GenerateFlags& flags, const Job& job) {
  AskOptions out;
  out.chat = flags.chat || (!flags.plain && trained_on_conversations(job.recipe));
  LOOM_CHECK_USER(out.chat || flags.system.empty(),
                  "--system is the beginning of a conversation, and this run is not asked in turns; add --chat");
  out.system = flags.system;
  const std::vector<std::string>& known = job.model->modalities();
  out.modality = !flags.modality.empty() || known.empty() ? flags.modality : known.front();
  out.pictures = picture_options(job.recipe);
  out.generate.max_new_tokens =
      flags.max_new_tokens > 0 ? flags.max_new_tokens : job.recipe.eval().get_int("max_new_tokens");
  out.generate.end_tokens = job.tokenizer->ends();
  out.generate.sampling.temperature = flags.temperature;
  out.generate.sampling.top_p = flags.top_p;
  out.generate.sampling.top_k = flags.top_k;
  out.generate.sampling.seed = flags.seed;
  return out;
}

// One question per picture, or one with all of them. A picture is dropped as soon as it is prepared.
std::vector<PreparedSample> questions(const GenerateFlags& flags, const Job& job, const AskOptions& options,
                                      size_t begin, size_t end) {
  std::vector<PreparedSample> out;
  std::vector<Media> together;
  std::map<std::string, uint64_t> seen;
  for (size_t i = begin; i < end; ++i) {
    const std::string& name = flags.pictures[i];
    Media picture = open_picture(name, options);
    if (flags.together) {
      together.push_back(std::move(picture));
      continue;
    }
    RawSample question = make_question(name, {std::move(picture)}, flags.prompt, options);
    // The same picture once more is drawn for anew.
    if (const uint64_t before = seen[name]++; before > 0) question.key = mix_hash(question.key, before);
    out.push_back(prepare_question(job, question));
  }
  if (out.empty())
    out.push_back(prepare_question(job, make_question("prompt", std::move(together), flags.prompt, options)));
  return out;
}

int answer_pictures(const GenerateFlags& flags, const Job& job, const AskOptions& options) {
  const size_t step = flags.together ? std::max<size_t>(flags.pictures.size(), 1) : kPicturesAtOnce;
  for (size_t begin = 0; begin == 0 || begin < flags.pictures.size(); begin += step) {
    const size_t end = std::min(flags.pictures.size(), begin + step);
    const std::vector<PreparedSample> samples = questions(flags, job, options, begin, end);
    std::vector<const PreparedSample*> pointers;
    for (const PreparedSample& sample : samples) pointers.push_back(&sample);
    GenerateOptions how = options.generate;
    how.on_token = [](int64_t, int64_t) { return !stop_requested(); };
    const auto answers = generate_in_passes(*job.model, pointers, how, job.preparer->options().budget);
    if (stop_requested()) return stop_exit_code();
    for (size_t i = 0; i < answers.size(); ++i) {
      if (!flags.pictures.empty() && !flags.together) std::printf("%s: ", flags.pictures[begin + i].c_str());
      if (!options.chat) std::printf("%s", flags.prompt.c_str());
      std::printf("%s\n", clean_text(job.tokenizer->decode(answers[i])).c_str());
    }
  }
  return 0;
}

int generate(const GenerateFlags& flags) {
  check(flags);
  const Job job = make_job(resolved_recipe_of(flags.run), {});
  load_model(checkpoint_of(flags.run, flags.step), *job.model);
  const AskOptions options = ask_options(flags, job);
  if (flags.interactive) return generate_chat(job, options, STDIN_FILENO);
  if (!flags.input.empty()) return generate_batch(job, options, flags.input, flags.output);
  LOOM_CHECK_USER(!flags.pictures.empty() || !flags.prompt.empty() || !options.chat,
                  "nothing is asked; give pictures, --prompt TEXT, --input FILE.jsonl or --interactive");
  return answer_pictures(flags, job, options);
}

}  // namespace

void add_generate_command(CLI::App& root, Command& run) {
  CLI::App* command = root.add_subcommand(
      "generate", "let a run's model write: omniloom generate RUN a.png b.jpg --prompt \"What is this?\"");
  const auto flags = std::make_shared<GenerateFlags>();
  command->add_option("run,--run", flags->run, "run folder")->required();
  command->add_option("pictures,--picture", flags->pictures,
                      "picture files, an answer each; or FILE#N for picture N of an IDX file");
  command->add_flag("--together", flags->together, "all pictures in one prompt, one answer");
  command->add_option("--prompt", flags->prompt, "what is asked; of a plain run, text that the answer continues");
  command->add_option("--system", flags->system, "system turn at the beginning of the conversation");
  command->add_flag("--chat", flags->chat, "ask in turns; default for runs trained on conversations");
  command->add_flag("--plain", flags->plain, "continue the prompt; default for other runs");
  command->add_option("--input", flags->input,
                      "file of samples (.jsonl): chat lines, whose last answer is written anew, or "
                      "{\"prompt\": ..., \"image\": ...}");
  command->add_option("--output", flags->output, "file of answers (.jsonl); default: the terminal");
  command->add_flag("--interactive,-i", flags->interactive, "a conversation: a prompt per line, /help for more");
  command->add_option("--temperature", flags->temperature, "0 = the most likely token; 1 = as the model says")
      ->capture_default_str();
  command->add_option("--top-p", flags->top_p, "only the likeliest tokens that together reach this probability")
      ->capture_default_str();
  command->add_option("--top-k", flags->top_k, "only so many of the likeliest tokens; 0 = all")->capture_default_str();
  command->add_option("--seed", flags->seed, "of sampling; the same seed gives the same answers")
      ->capture_default_str();
  command->add_option("--max-new-tokens", flags->max_new_tokens, "default: eval.max_new_tokens of the recipe");
  command->add_option("--modality", flags->modality, "encoder that takes the pictures; default: the first");
  command->add_option("--step", flags->step, "checkpoint of this step; default: the newest");
  command->callback([flags, &run] { run = [flags] { return generate(*flags); }; });
}

}  // namespace loom
