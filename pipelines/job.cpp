#include "pipelines/job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <thread>

#include <ATen/Parallel.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/parts.h"
#include "core/data/background.h"
#include "core/data/held_out.h"
#include "core/reshard/row_move.h"
#include "pipelines/build_model.h"
#include "pipelines/device.h"
#include "pipelines/mix_request.h"
#include "pipelines/mix_section.h"
#include "pipelines/parallel_section.h"
#include "pipelines/run_folder.h"

namespace loom {
namespace {

std::unique_ptr<Preparer> make_preparer(const Job& job) {
  PreparerOptions options;
  for (const std::string& modality : job.model->modalities()) {
    // Cuts are part of every verdict, so they are only asked for where items may be divided at all.
    const bool divisible = job.layout.encoder(modality).sp > 1 && job.model->divisible(modality);
    options.modalities[modality] = {&job.model->encoder(modality), job.model->merge(modality), divisible,
                                    job.model->features_partition(modality),
                                    job.model->bridge_stream(modality).empty()};
    const ComponentLayout layout = job.layout.encoder(modality);
    options.modalities[modality].most_rows = layout.most_rows;
    options.modalities[modality].ranks = std::min(layout.sp, balance_group(job.layout.balance, job.layout.world));
  }
  options.tokenizer = job.tokenizer.get();
  options.backbone = &job.model->backbone();
  options.budget = job.recipe.data().get_int("budget");
  options.over_long = parse_over_long(job.recipe.data().at("over_long"));
  options.unsupervised = parse_unsupervised(job.recipe.data().at("unsupervised"));
  options.seed = static_cast<uint64_t>(job.recipe.train().get_int("seed"));
  return std::make_unique<Preparer>(std::move(options));
}

// A run keeps a copy of its tokenizer, so that it does not need the original; what the command line says goes first.
ConfigValue tokenizer_of(const Recipe& recipe) {
  ConfigValue out = recipe.data().at("tokenizer");
  const std::filesystem::path file(recipe.file);
  const std::string kept = (file.parent_path() / kKeptTokenizer).string();
  const bool of_run = file.filename() == kResolvedRecipe && out.mark.file == recipe.file;
  if (!of_run || !out.as_string().ends_with(".json") || !is_file(kept)) return out;
  ConfigValue copy = ConfigValue::string(kept);
  copy.mark = out.mark;
  copy.path = out.path;
  return copy;
}

// `comm` is null for one rank.
void construct(Job& job, Communicator* comm, std::optional<TileTimes> tiles = std::nullopt) {
  const ConfigValue tokenizer = tokenizer_of(job.recipe);
  job.tokenizer = make_tokenizer(tokenizer);
  if (tokenizer.as_string().ends_with(".json")) job.tokenizer_file = tokenizer.as_string();
  job.model = build_model(job.recipe, job.tokenizer->vocab_size(), *job.plugins,
                          {.comm = comm, .layout = job.layout, .device = job.device, .tiles = tiles});
  job.layout.backbone.tile_queries = job.model->parts().backbone->options().tile_queries;
  for (auto& [modality, layout] : job.layout.encoders)
    layout.tile_queries = job.model->parts().encoders.at(modality)->options().tile_queries;
  for (const std::string& modality : job.model->modalities()) {
    ConnectorSide& side = job.layout.connectors[modality].side;
    side =
        runs_at_slots(job.model->connector_widths(modality), side) ? ConnectorSide::backbone : ConnectorSide::encoder;
  }
  job.preparer = make_preparer(job);
  if (comm == nullptr || comm->rank() == 0)
    job.pool = std::make_unique<ThreadPool>(static_cast<int>(job.recipe.data().get_int("workers")), behind_compute);
}

// Nothing where no layout asks.
std::optional<TileTimes> measured_tiles(const Job& job, Communicator& comm) {
  const auto asks = [](const ComponentLayout& layout) { return layout.tile_queries == kLeastTime && layout.sp > 1; };
  bool asked = asks(job.layout.backbone);
  for (const auto& [modality, layout] : job.layout.encoders) asked = asked || asks(layout);
  if (!asked) return std::nullopt;
  const TileTimes times = measure_tiles(comm, compute_type(job.recipe.train().get_string("precision")), job.device);
  if (comm.rank() == 0)
    log_info("measured ", std::lround(1e6 * times.message), " us a message, ", human_bytes(1 / times.byte),
             "/s, attention ", human_count(1 / times.operation), " operations/s");
  return times;
}

// The threshold, where the recipe leaves it to be measured.
void measure_bridge(Job& job, Communicator& comm) {
  BridgeChoice& bridge = job.layout.bridge;
  if (bridge.path != BridgePath::by_traffic || bridge.threshold > 0) return;
  bridge.threshold = symmetric_threshold(comm, compute_type(job.recipe.train().get_string("precision")), job.device);
  if (comm.rank() == 0)
    log_info("bridge  symmetric where the busiest rank of the exact path has ", std::lround(100 * bridge.threshold),
             " % of its bytes (measured)");
}

}  // namespace

Job read_job(const std::string& recipe_file, const std::vector<std::string>& overrides) {
  Job job;
  job.registry = std::make_unique<Registry>();
  job.plugins = std::make_unique<PluginLoader>(*job.registry);
  job.recipe = load_recipe(recipe_file, overrides, *job.plugins);
  check_device(job.recipe);
  return job;
}

int threads_per_rank(const Recipe& recipe, int ranks) {
  const auto asked = static_cast<int>(recipe.train().get_int("threads"));
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
}

Job make_job(const std::string& recipe_file, const std::vector<std::string>& overrides) {
  Job job = read_job(recipe_file, overrides);
  job.threads = threads_per_rank(job.recipe, 1);
  at::set_num_threads(job.threads);
  job.device = choose_device(job.recipe, 1);
  construct(job, nullptr);
  return job;
}

Job make_dry_job(const std::string& recipe_file, const std::vector<std::string>& overrides) {
  return make_dry_job(recipe_file, overrides, alone());
}

Job make_dry_job(const std::string& recipe_file, const std::vector<std::string>& overrides, Communicator& comm) {
  Job job = read_job(recipe_file, overrides);
  job.layout = comm.world() > 1 ? read_layout(job.recipe, comm.world()) : read_passes(job.recipe);
  job.device = c10::Device(c10::DeviceType::Meta);
  construct(job, comm.world() == 1 ? nullptr : &comm);
  return job;
}

Job make_job(const std::string& recipe_file, const std::vector<std::string>& overrides, Communicator& comm,
             const RankPlace& place) {
  static std::mutex one_at_a_time;
  std::unique_lock<std::mutex> turn(one_at_a_time);
  Job job = read_job(recipe_file, overrides);
  job.layout = read_layout(job.recipe, comm.world());
  job.place = place;
  const int threads_here = place.world > 1 ? 1 : comm.world();  // ranks of this process
  job.threads = threads_per_rank(job.recipe, std::max(threads_here, place.local_world));
  if (threads_here == 1) at::set_num_threads(job.threads);  // of several, each thread has been given its own number
  job.device = choose_device(job.recipe, threads_here, place.local_rank);
  if (comm.world() == 1) {
    construct(job, nullptr);
    return job;
  }
  turn.unlock();  // all together
  const std::optional<TileTimes> tiles = measured_tiles(job, comm);
  measure_bridge(job, comm);
  turn.lock();
  construct(job, &comm, tiles);
  return job;
}

std::vector<std::shared_ptr<Source>> Job::sources(const char* list) const {
  std::vector<std::shared_ptr<Source>> out;
  const ConfigValue& data = recipe.data();
  const bool evaluating = std::string_view(list) == "eval";
  const double share = data.at("eval").items().empty() ? data.get_number("hold_out") : 0;
  const ConfigValue& items = data.at(share > 0 ? "train" : list);
  LOOM_CHECK_USER(!items.items().empty(), recipe.file, ": data.", list, ": no source; give at least one",
                  evaluating ? ", or set data.hold_out: 0.1" : "");
  int number = 0;
  for (const ConfigValue& item : items.items()) {
    ConfigValue config = item;
    if (config.find("max_pixels") == nullptr) config.set("max_pixels", data.at("max_pixels"));
    std::shared_ptr<Source> source = make_source(config, number++);
    if (share > 0) {
      const DividedSource parts = hold_out(std::move(source), share);
      source = evaluating ? parts.held : parts.kept;
    }
    if (source != nullptr) out.push_back(std::move(source));
  }
  LOOM_CHECK_USER(!out.empty(), said_at(data.at("hold_out")),
                  "the training sources have one sample each, so none can be kept");
  return out;
}

std::unique_ptr<StepLoader> make_loader(const Job& job, std::vector<std::shared_ptr<Source>> sources,
                                        const std::string& run) {
  LoaderOptions options;
  options.batch = parse_batch(job.recipe.train().at("batch"));
  options.shuffle = job.recipe.data().get_bool("shuffle");
  options.seed = static_cast<uint64_t>(job.recipe.train().get_int("seed"));
  options.max_skip_rate = job.recipe.data().get_number("max_skip_rate");
  if (!run.empty()) options.journal = run + "/skips.jsonl";
  if (!run.empty()) options.mix_journal = concat(run, "/", kMixJournal);
  options.mix = read_mix(job.recipe.data());
  options.layout = job.layout;
  for (const auto& source : sources) job.preparer->check_source(*source);
  return std::make_unique<StepLoader>(std::move(sources), *job.preparer, *job.pool, std::move(options));
}

void load_model(const std::string& checkpoint, MultimodalModel& model) {
  load_checkpoint(checkpoint, model_tensors(model), {Unasked::ignore, true});
  model.weights_written();
}

std::vector<NamedTensor> model_tensors(MultimodalModel& model) {
  std::vector<NamedTensor> out;
  for (UnitBuffer* buffer : model.buffers()) append_parts(*buffer, buffer->master(), "", out);
  for (BoundComponent* component : model.components()) {
    const std::vector<StateDecl>& states = component->declarations().states;
    for (size_t s = 0; s < states.size(); ++s)  // equal on all ranks
      out.push_back({states[s].name, component->states().value_at(s), {}, {}, model.comm().rank() == 0});
  }
  return out;
}

std::string checkpoint_of(const std::string& run, int64_t step) {
  if (step <= 0) {
    const auto latest = latest_checkpoint(run);
    LOOM_CHECK_USER(latest.has_value(), run, ": holds no complete checkpoint");
    return latest->folder;
  }
  std::vector<std::string> steps;
  for (const CheckpointInfo& info : list_checkpoints(run)) {
    if (info.step == step) return info.folder;
    steps.push_back(std::to_string(info.step));
  }
  throw UserError(concat(run, ": holds no complete checkpoint of step ", step, "; steps there: ", join(steps, ", ")));
}

std::string model_line(const Job& job) {
  std::string out;
  int64_t trainable = 0;
  const auto add = [&](const std::string& label, const BoundComponent& component) {
    out += concat(label, " ", human_count(static_cast<double>(component.params_total())), " · ");
    trainable += component.params_trainable();
  };
  for (const auto& [modality, component] : job.recipe.encoders) {
    add(modality + " " + component.spec->name, *job.model->parts().encoders.at(modality));
    add(job.recipe.connectors.at(modality).spec->name, *job.model->parts().connectors.at(modality));
  }
  add(job.recipe.backbone.spec->name, *job.model->parts().backbone);
  return out + human_count(static_cast<double>(trainable)) + " trainable";
}

}  // namespace loom
