#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "core/base/gpu.h"
#include "core/reshard/row_move.h"

namespace loom {
namespace {

constexpr int64_t kMessageBytes = 1 << 20;
constexpr int kRuns = 5;
constexpr double kMost = 100;

// The least of several runs, since others disturb but never help.
template <class Run>
double seconds_of(Communicator& comm, c10::Device device, const Run& run) {
  double least = 1e9;
  for (int i = 0; i <= kRuns; ++i) {
    comm.barrier("measuring the bridge", world_group(comm.world()));
    const auto begin = std::chrono::steady_clock::now();
    run();
    if (device.is_cuda()) synchronize_gpu();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) least = std::min(least, seconds);  // the first one warms up
  }
  return least;
}

}  // namespace

double symmetric_threshold(Communicator& comm, c10::ScalarType type, c10::Device device) {
  const int world = comm.world();
  if (world == 1) return 1;
  const at::TensorOptions options = at::TensorOptions(type).device(device);
  const auto count = kMessageBytes / static_cast<int64_t>(c10::elementSize(type));
  const Tensor out = at::zeros({world, count}, options), in = at::zeros({world, count}, options);
  const Tensor sum = at::zeros({count}, options);
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < world; ++peer) {
    if (peer == comm.rank()) continue;
    sends.push_back({peer, out[peer]});
    receives.push_back({peer, in[peer]});
  }
  const double exact = seconds_of(comm, device, [&] { comm.exchange("measuring the bridge", sends, receives).wait(); });
  const double symmetric = seconds_of(comm, device, [&] {
    comm.reduce_scatter_add("measuring the bridge", world_group(world), out.view({-1}), sum).wait();
  });
  const std::vector<double> mine{exact, symmetric};
  const Tensor all = at::empty({world * 2}, at::kDouble);
  comm.all_gather("measuring the bridge", world_group(world), at::tensor(mine, at::kDouble), all).wait();
  const Tensor slowest = std::get<0>(all.view({world, 2}).max(0));
  return std::min(kMost, slowest[1].item<double>() / std::max(1e-9, slowest[0].item<double>()));
}

}  // namespace loom
