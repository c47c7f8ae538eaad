// The planner on worlds that are not here, in virtual time: what a step would take by measured seconds per unit of
// cost, with every component in the backbone's layout and nothing balanced, and with items over all ranks, long ones
// divided, samples dealt by cost. Ranks meet in every microbatch and every pass, so a step is the sum of their slowest
// ranks; messages are free. Prints JSON lines; everything in them is simulated.
//   mix_sim SECONDS_PER_ENCODER_COST SECONDS_PER_BACKBONE_COST [WORLD...]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/step/imbalance.h"
#include "core/step/step_plan.h"

namespace loom {
namespace {

constexpr int64_t kSamplesPerRank = 8, kLongestPhoto = 16384, kMerge = 4;
constexpr int kSteps = 20;

// FLOPs of a ViT of width 1024 and depth 24, and of a decoder of width 4096 and depth 32, forward.
double encoder_cost(double tokens) { return 24 * (2 * tokens * 12 * 1024 * 1024 + 4 * tokens * tokens * 1024); }
double backbone_cost(double tokens) { return 32 * (2 * tokens * 12 * 4096 * 4096 + 2 * tokens * tokens * 4096); }

// `pictures` of ten samples have one, of log-normal size (sigma 1.2).
std::vector<Verdict> samples_of(int64_t count, int pictures, uint64_t seed) {
  const Philox random({seed, Purpose::sample});
  std::vector<Verdict> out;
  for (int64_t i = 0; i < count; ++i) {
    const auto draw = static_cast<uint64_t>(3 * i);
    Verdict& sample = out.emplace_back();
    sample.sample = static_cast<uint64_t>(i);
    sample.tokens = std::clamp<int64_t>(std::llround(200 * std::exp(0.8 * random.normal(draw))), 1, 4096);
    if (static_cast<int>(random.below(10, draw + 1)) < pictures) {
      ItemPlace& item = sample.items.emplace_back();
      item.modality = "image";
      const double length = 1024 * std::exp(1.2 * random.normal(draw + 2));
      const int64_t tokens = std::clamp<int64_t>(std::llround(length / kMerge), 1, kLongestPhoto / kMerge) * kMerge;
      item.meta = {tokens, tokens, encoder_cost(static_cast<double>(tokens)), {}};
      item.slots = tokens / kMerge;
      for (int64_t cut = kMerge; cut < tokens; cut += kMerge) item.cuts.push_back(cut);
      sample.tokens += item.slots;
    }
    sample.cost = backbone_cost(static_cast<double>(sample.tokens));
    sample.supervised = 1;
  }
  return out;
}

struct Times {
  double step = 0, planning = 0;  // seconds
};

Times mean_step(const WorldLayout& layout, int pictures, double encoder, double backbone) {
  Times out;
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<Verdict> samples =
        samples_of(kSamplesPerRank * layout.world, pictures, static_cast<uint64_t>(step) * 100);
    const auto begin = std::chrono::steady_clock::now();
    const StepPlan plan = make_step_plan(step, std::move(samples), 16384, 0, layout);
    out.planning += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::vector<std::map<std::string, std::vector<RankLoad>>> loads;
    for (const MicrobatchPlan& microbatch : plan.microbatches) loads.push_back(rank_loads(plan, microbatch));
    for (const auto& of : loads) {
      double most = 0;
      for (const RankLoad& load : of.at("backbone")) most = std::max(most, load.cost);
      out.step += most * backbone;
    }
    for (const EncoderPass& pass : encoder_passes(plan)) {
      std::vector<double> costs(static_cast<size_t>(layout.world));
      for (size_t m = pass.first; m <= pass.last; ++m) {
        const auto found = loads[m].find("encoders.image");
        if (found == loads[m].end()) continue;
        for (size_t rank = 0; rank < costs.size(); ++rank) costs[rank] += found->second[rank].cost;
      }
      out.step += *std::max_element(costs.begin(), costs.end()) * encoder;
    }
  }
  out.step /= kSteps;
  out.planning /= kSteps;
  return out;
}

WorldLayout shared_layout(int world) {
  WorldLayout out;
  out.world = world;
  out.balance.move = out.balance.split = out.balance.pack = false;
  return out;
}

WorldLayout own_layouts(int world) {
  WorldLayout out;
  out.world = world;
  out.encoders["image"].sp = 8;
  out.encoders["image"].macro = 0;
  return out;
}

void print(int world, int pictures, double encoder, double backbone) {
  const Times shared = mean_step(shared_layout(world), pictures, encoder, backbone);
  const Times own = mean_step(own_layouts(world), pictures, encoder, backbone);
  std::printf("{\"simulated\":true,\"world\":%d,\"pictures\":%d,\"shared\":%.6g,\"own\":%.6g,\"gain\":%.4g", world,
              pictures, shared.step, own.step, shared.step / own.step);
  struct Off {
    const char* name;
    void (*turn)(WorldLayout&);
  };
  const Off offs[] = {{"move", [](WorldLayout& layout) { layout.balance.move = false; }},
                      {"split", [](WorldLayout& layout) { layout.balance.split = false; }},
                      {"pack", [](WorldLayout& layout) { layout.balance.pack = false; }},
                      {"macro", [](WorldLayout& layout) { layout.encoders["image"].macro = 1; }}};
  for (const Off& off : offs) {
    WorldLayout layout = own_layouts(world);
    off.turn(layout);
    std::printf(",\"without_%s\":%.4g", off.name, shared.step / mean_step(layout, pictures, encoder, backbone).step);
  }
  std::printf(",\"planning_ms\":%.3g}\n", 1e3 * own.planning);
  std::fflush(stdout);
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "mix_sim SECONDS_PER_ENCODER_COST SECONDS_PER_BACKBONE_COST [WORLD...]\n");
    return 2;
  }
  std::vector<int> worlds;
  for (int i = 3; i < argc; ++i) worlds.push_back(std::atoi(argv[i]));
  if (worlds.empty()) worlds = {64, 128, 256, 512};
  for (const int world : worlds) {
    for (int pictures = 1; pictures <= 9; pictures += 2)
      loom::print(world, pictures, std::atof(argv[1]), std::atof(argv[2]));
  }
  return 0;
}
