#include "pipelines/wire_forecast.h"

#include <exception>

#include <ATen/ops/empty.h>

#include "core/base/log.h"
#include "core/comm/dry.h"
#include "pipelines/plan.h"

namespace loom {
namespace {

constexpr int kAllRanks = 8;  // worlds up to here are run completely

// Contents without values for samples that came without.
LoadedStep filled(const Job& job, const LoadedStep& loaded) {
  LoadedStep out = loaded;
  for (size_t s = 0; s < out.samples.size(); ++s) {
    PreparedSample& sample = out.samples[s];
    const Verdict& verdict = out.plan.samples[s];
    if (sample.tokens.empty()) {
      sample.tokens.assign(static_cast<size_t>(verdict.tokens), 0);
      sample.supervised.assign(static_cast<size_t>(verdict.tokens - verdict.supervised), 0);
      sample.supervised.resize(static_cast<size_t>(verdict.tokens), 1);
    }
    sample.media.clear();
    sample.media_begin.clear();
    for (const ItemPlace& item : verdict.items) {
      sample.media.push_back(at::empty({item.meta.tokens, job.model->encoder(item.modality).media_width()},
                                       at::TensorOptions(at::kFloat).device(at::kMeta)));
    }
  }
  return out;
}

}  // namespace

WireForecast wire_forecast(const Job& job, const LoadedStep& loaded) {
  const int world = job.layout.world;
  WireForecast out;
  const LoadedStep step = filled(job, loaded);
  try {
    for (int rank = 0; rank < (world <= kAllRanks ? world : 1); ++rank) {
      DryCommunicator comm(rank, world);
      const Traffic traffic = plan_rank(job, comm, {step}).steps.front().traffic;
      for (const BoundComponent* component : job.model->components())
        out.try_emplace(component->name(), world, -1).first->second[static_cast<size_t>(rank)] = 0;
      out.try_emplace("", world, -1).first->second[static_cast<size_t>(rank)] = 0;
      for (const auto& [site, count] : traffic) {
        if (const auto of = out.find(site.component); of != out.end())
          of->second[static_cast<size_t>(rank)] += count.bytes;
      }
    }
  } catch (const std::exception& error) {
    log_info("no bytes of ranks predicted: ", error.what());
    return {};
  }
  return out;
}

}  // namespace loom
