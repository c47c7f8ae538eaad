// `omniloom generate`: what a trained run writes about pictures.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/data/batch_builder.h"
#include "core/data/idx_source.h"
#include "core/data/picture.h"
#include "core/model/generator.h"
#include "pipelines/cli.h"
#include "pipelines/job.h"
#include "pipelines/run_folder.h"

namespace loom {
namespace {

struct GenerateFlags {
  std::string run, prompt, modality;
  std::vector<std::string> pictures;
  int64_t step = 0, max_new_tokens = 0;
};

// "a.png", or "images-idx3-ubyte.gz#17" for picture 17 of an IDX file.
Media open_picture(const std::string& place, const std::string& modality) {
  const size_t mark = place.rfind('#');
  if (mark == std::string::npos) return read_picture(place, modality);
  const std::string number = place.substr(mark + 1);
  LOOM_CHECK_USER(!number.empty() && number.find_first_not_of("0123456789") == std::string::npos && number.size() < 10,
                  place, ": after '#' a picture number is expected, from 0");
  return read_idx_picture(place.substr(0, mark), std::stoll(number), modality);
}

int generate(const GenerateFlags& flags) {
  const Job job = make_job(resolved_recipe_of(flags.run), {});
  load_model(checkpoint_of(flags.run, flags.step), *job.model);
  const std::vector<std::string>& known = job.model->modalities();
  LOOM_CHECK_USER(!known.empty() || flags.pictures.empty(), flags.run, ": the model takes no pictures");
  const std::string modality = !flags.modality.empty() || known.empty() ? flags.modality : known.front();

  std::vector<PreparedSample> samples;
  std::vector<std::string> names = flags.pictures;
  if (names.empty()) names.emplace_back();
  for (const std::string& name : names) {
    RawSample raw;
    raw.name = name.empty() ? "prompt" : name;
    raw.key = hash_name(raw.name);
    if (!name.empty()) raw.parts.push_back(SamplePart::make_media(open_picture(name, modality)));
    if (!flags.prompt.empty()) raw.parts.push_back(SamplePart::make_text(flags.prompt, false));
    PreparedSample prepared = job.preparer->prepare(raw);
    LOOM_CHECK_USER(prepared.verdict.ok, raw.name, ": ", prepared.verdict.reason);
    samples.push_back(std::move(prepared));
  }
  std::vector<const PreparedSample*> pointers;
  for (const PreparedSample& sample : samples) pointers.push_back(&sample);
  const int64_t limit = flags.max_new_tokens > 0 ? flags.max_new_tokens : job.recipe.eval().get_int("max_new_tokens");
  const auto answers =
      generate(*job.model, build_prompt_batch(pointers, *job.model), {limit, job.tokenizer->ends()});
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!names[i].empty()) std::printf("%s: ", names[i].c_str());
    std::printf("%s%s\n", flags.prompt.c_str(), job.tokenizer->decode(answers[i]).c_str());
  }
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& root, Command& run) {
  CLI::App* command =
      root.add_subcommand("generate", "let a run's model write about pictures: omniloom generate RUN a.png b.jpg");
  const auto flags = std::make_shared<GenerateFlags>();
  command->add_option("run,--run", flags->run, "run folder")->required();
  command->add_option("pictures,--picture", flags->pictures, "picture files, or FILE#N for picture N of an IDX file");
  command->add_option("--prompt", flags->prompt, "text that the answer continues");
  command->add_option("--modality", flags->modality, "encoder that takes the pictures; default: the first");
  command->add_option("--step", flags->step, "checkpoint of this step; default: the newest");
  command->add_option("--max-new-tokens", flags->max_new_tokens, "default: eval.max_new_tokens of the recipe");
  command->callback([flags, &run] { run = [flags] { return generate(*flags); }; });
}

}  // namespace loom
