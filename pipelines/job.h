#pragma once
// From a recipe to objects, in one fixed order: plugins, model, data. Commands share it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/checkpoint/checkpoint.h"
#include "core/data/loader.h"
#include "core/data/preparer.h"
#include "core/data/source.h"
#include "core/data/tokenizer.h"
#include "core/model/multimodal_model.h"
#include "core/model/registry.h"
#include "pipelines/recipe.h"
#include "plugins/loader/plugin_loader.h"

namespace loom {

struct Job {
  std::unique_ptr<Registry> registry;
  std::unique_ptr<PluginLoader> plugins;
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<MultimodalModel> model;
  std::unique_ptr<Preparer> preparer;
  std::unique_ptr<ThreadPool> pool;
  int threads = 1;

  std::vector<std::shared_ptr<Source>> sources(const char* list) const;  // "train" or "eval"
};

// Reads the recipe and constructs everything but sources. Also sets the number of compute threads.
Job make_job(const std::string& recipe_file, const std::vector<std::string>& overrides);
// Only reads and validates.
Job read_job(const std::string& recipe_file, const std::vector<std::string>& overrides);

// Prepares steps in the job's pool; `journal` is the path of skips.jsonl. The job must outlive it.
std::unique_ptr<StepLoader> make_loader(const Job& job, std::vector<std::shared_ptr<Source>> sources,
                                        const std::string& journal);

// Master weights by full name, for checkpoints.
std::vector<NamedTensor> model_tensors(MultimodalModel& model);
// Fills the model from a checkpoint folder; optimizer state is left alone.
void load_model(const std::string& checkpoint, MultimodalModel& model);
// The run's newest complete checkpoint, or the given step's. UserError when there is none.
std::string checkpoint_of(const std::string& run, int64_t step);

// "image vit 0.5M · mlp 0.1M · llama 0.6M · 1.2M trainable"
std::string model_line(const Job& job);

}  // namespace loom
