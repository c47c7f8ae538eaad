#include "core/nn/tile_times.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/base/error.h"
#include "core/comm/communicator.h"
#include "core/nn/attention_tiles.h"
#include "core/nn/varlen_attention.h"

namespace loom {
namespace {

struct Stage {
  double sent = 0;     // bytes; 0 = nothing moves
  double worked = 0;   // operations
  bool waits = false;  // for the work before it
};

// As tiles::Schedule::run: the next transfer starts before this one is waited for, unless it waits for work.
double seconds_of(const std::vector<Stage>& stages, const TileTimes& times) {
  double now = 0, link = 0, arrival = 0;
  const auto start = [&](const Stage& stage) {
    if (stage.sent == 0) return now;
    link = std::max(link, now) + times.message + stage.sent * times.byte;
    return link;
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i == 0 || stages[i].waits) arrival = start(stages[i]);
    const double mine = arrival;
    if (i + 1 < stages.size() && !stages[i + 1].waits) arrival = start(stages[i + 1]);
    now = std::max(now, mine) + stages[i].worked * times.operation;
  }
  return now;
}

constexpr double kWorthwhile = 0.99;  // of the time of a shape that holds less
constexpr double kShortest = 1e-9;    // seconds that a clock tells apart
constexpr double kBackward = 2.5;     // operations of the backward for one of the forward

std::vector<Stage> stages_of(const TileWork& work, int a, bool backward) {
  const double n = work.members, rows = static_cast<double>(work.rows) / n;
  const double q = rows * static_cast<double>(work.heads * work.head_dim * work.element_bytes);
  const double kv = 2 * q * static_cast<double>(work.kv_heads) / static_cast<double>(work.heads);
  const double cell = (work.causal ? 2 : 4) * rows * rows * static_cast<double>(work.heads * work.head_dim);
  const double unit = backward ? kBackward * cell : cell;
  const int b = work.members / a;
  std::vector<Stage> out{{0, unit}};
  for (int i = 1; i < a; ++i) out.push_back({backward ? 2 * q : q, unit});
  for (int i = 1; i < b; ++i) {
    out.push_back({kv, a * unit});
    if (backward && i > 1) out.push_back({kv, 0});  // gradients of the keys before
  }
  if (backward && b > 1) out.push_back({kv, 0, true});
  for (int i = 1; i < a; ++i) out.push_back({q, 0, i == 1});
  return out;
}

using Clock = std::chrono::steady_clock;

template <class F>
double least_seconds(int times, const F& f) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    const auto begin = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

double tile_seconds(const TileWork& work, int queries, const TileTimes& times) {
  LOOM_CHECK(queries > 0 && work.members % queries == 0, "a tile of ", queries, " chunks on ", work.members, " ranks");
  return seconds_of(stages_of(work, queries, false), times) + seconds_of(stages_of(work, queries, true), times);
}

int least_time(const TileWork& work, const TileTimes& times) {
  return best_divisor(
      work.members, [&](int a) { return tile_seconds(work, a, times); }, kWorthwhile);
}

TileTimes measure_tiles(Communicator& comm, at::ScalarType type, c10::Device device) {
  constexpr int64_t kBytes = 4 << 20, kRows = 256, kHeads = 4, kDim = 64;
  constexpr int kRounds = 5;
  const c10::NoGradGuard no_grad;
  const int world = comm.world(), next = (comm.rank() + 1) % world, before = (comm.rank() + world - 1) % world;
  const at::TensorOptions options = at::TensorOptions().device(device).dtype(type);
  const auto round_trip = [&](int64_t numbers) {
    const Tensor sent = at::zeros({numbers}, options), got = at::empty({numbers}, options);
    return least_seconds(kRounds, [&] { comm.exchange("links: measured", {{next, sent}}, {{before, got}}).wait(); });
  };
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  const Tensor q = at::ones({kRows, kHeads * kDim}, options);
  VarlenShape shape;
  shape.heads = shape.kv_heads = kHeads;
  shape.head_dim = kDim;
  shape.scale = 1.0 / kDim;
  const double message = round_trip(1), large = round_trip(kBytes / size);
  const double attention = least_seconds(kRounds, [&] {
    varlen_attention_forward(q, q, q, {{0, kRows, 0, kRows}}, shape);
  });
  const std::vector<double> mine{message, std::max(large - message, kShortest) / kBytes,
                                 attention / static_cast<double>(4 * kRows * kRows * kHeads * kDim)};
  const Tensor all = at::empty({world * 3}, at::kDouble);
  comm.all_gather("links: measured", world_group(world), at::tensor(mine, at::kDouble), all).wait();
  const Tensor slowest = std::get<0>(all.view({world, 3}).max(0));
  const double* values = slowest.const_data_ptr<double>();
  return {values[0], values[1], values[2]};
}

}  // namespace loom
