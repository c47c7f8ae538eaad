#include "pipelines/run_state.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/checkpoint/checkpoint.h"
#include "pipelines/job.h"

namespace loom {
namespace {

using Json = nlohmann::ordered_json;

std::vector<NamedTensor> all_tensors(MultimodalModel& model, Optimizer& optimizer) {
  std::vector<NamedTensor> out = model_tensors(model);
  for (NamedTensor& state : optimizer.state()) out.push_back(std::move(state));
  return out;
}

Json parse_extra(const Manifest& manifest, const std::string& folder) {
  Json extra = Json::parse(manifest.extra, nullptr, false);
  LOOM_CHECK_USER(extra.is_object() && extra.contains("counters") && extra.contains("loader"), folder,
                  ": the manifest has no loader and counters; was it written by another program?");
  return extra;
}

RunState counters_of(const Json& extra, int64_t step) {
  const Json& counters = extra.at("counters");
  RunState state;
  state.step = step;
  state.train_seconds = counters.value("train_seconds", 0.0);
  state.tokens = counters.value("tokens", int64_t{0});
  state.samples = counters.value("samples", int64_t{0});
  return state;
}

}  // namespace

RunSaver::RunSaver(const std::string& run, const WriterOptions& options, MultimodalModel& model, Optimizer& optimizer)
    : model_(model), optimizer_(optimizer), writer_(model.comm(), run, options) {}

void RunSaver::save(const RunState& state, const StepLoader* loader) {
  Json extra = Json::object();
  if (model_.comm().rank() == 0) {
    extra["counters"] = {{"train_seconds", state.train_seconds},
                         {"tokens", state.tokens},
                         {"samples", state.samples},
                         {"optimizer_steps", optimizer_.steps()}};
    extra["loader"] = Json::parse(loader->state().json());
  }
  writer_.save(state.step, all_tensors(model_, optimizer_), extra.dump());
}

RunState read_run_state(const std::string& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  return counters_of(parse_extra(manifest, checkpoint), manifest.step);
}

RunState restore_run(const std::string& checkpoint, MultimodalModel& model, Optimizer& optimizer, StepLoader* loader) {
  const Manifest manifest = load_checkpoint(model.comm(), checkpoint, all_tensors(model, optimizer));
  model.weights_written();
  const Json extra = parse_extra(manifest, checkpoint);
  optimizer.set_steps(extra.at("counters").value("optimizer_steps", int64_t{0}));
  if (loader != nullptr) loader->restore(parse_loader_state(extra.at("loader").dump(), checkpoint));
  return counters_of(extra, manifest.step);
}

}  // namespace loom
