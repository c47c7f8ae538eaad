#pragma once
// From a recipe to objects, in one fixed order: plugins, model, data. Commands share it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "core/base/thread_pool.h"
#include "core/checkpoint/checkpoint.h"
#include "core/comm/rank_place.h"
#include "core/data/loader.h"
#include "core/data/preparer.h"
#include "core/data/source.h"
#include "core/data/tokenizer.h"
#include "core/model/multimodal_model.h"
#include "core/model/registry.h"
#include "core/step/world_layout.h"
#include "pipelines/recipe.h"
#include "plugins/loader/plugin_loader.h"

namespace loom {

struct Job {
  std::unique_ptr<Registry> registry;
  std::unique_ptr<PluginLoader> plugins;
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string tokenizer_file{};  // the tokenizer.json it was read from; "" for one that needs no file
  std::unique_ptr<MultimodalModel> model;
  std::unique_ptr<Preparer> preparer;
  std::unique_ptr<ThreadPool> pool;  // of rank 0, which alone prepares samples
  WorldLayout layout;
  c10::Device device{c10::DeviceType::CPU};  // where the model is; Meta in a dry run
  int threads = 1;                           // compute threads of this rank
  RankPlace place{};                         // of a rank with a process of its own

  std::vector<std::shared_ptr<Source>> sources(const char* list) const;  // "train" or "eval"
};

// Reads the recipe and constructs everything but sources, for one rank, whatever its `parallel` section says. Also sets
// the number of compute threads.
Job make_job(const std::string& recipe_file, const std::vector<std::string>& overrides);
// The same for this rank of several, under the recipe's layout. Ranks that are threads of one process construct one
// after another: plugins are opened and their factories called by one thread at a time. `place` is that of a rank with
// a process of its own.
Job make_job(const std::string& recipe_file, const std::vector<std::string>& overrides, Communicator& comm,
             const RankPlace& place = {});
// For one rank, with a model of tensors without memory: it can be planned, not trained. Made in no time for any size.
Job make_dry_job(const std::string& recipe_file, const std::vector<std::string>& overrides);
// The same for this rank of several, under the recipe's layout; a DryCommunicator lets it be planned without the
// others.
Job make_dry_job(const std::string& recipe_file, const std::vector<std::string>& overrides, Communicator& comm);
// Only reads and validates.
Job read_job(const std::string& recipe_file, const std::vector<std::string>& overrides);
// What train.threads means for each of `ranks` on this machine: the number asked for, or an equal share of the cores.
int threads_per_rank(const Recipe& recipe, int ranks);

// Prepares steps in the job's pool; skips.jsonl and mix.jsonl lie in the run folder, nowhere without one. The job must
// outlive it.
std::unique_ptr<StepLoader> make_loader(const Job& job, std::vector<std::shared_ptr<Source>> sources,
                                        const std::string& run);

// This rank's parts of the master weights, and states, by full name, for checkpoints.
std::vector<NamedTensor> model_tensors(MultimodalModel& model);
// Fills the model from a checkpoint folder; optimizer state is left alone.
void load_model(const std::string& checkpoint, MultimodalModel& model);
// The run's newest complete checkpoint, or the given step's. UserError when there is none.
std::string checkpoint_of(const std::string& run, int64_t step);

// "image vit 0.5M · mlp 0.1M · llama 0.6M · 1.2M trainable"
std::string model_line(const Job& job);

}  // namespace loom
