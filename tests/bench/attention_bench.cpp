// Packed attention against its composition of ATen operations, and against what a PyTorch program would use, which is
// itself fused: scaled_dot_product_attention for every segment of the pack. A benchmark is named attention/pack/mask/
// width x query heads x key heads/pass/threads/fused, its peers .../composed and .../sdpa; run.py pairs them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/ops/pieces.h"
#include "core/nn/varlen_attention.h"

namespace loom {
namespace {

struct Pack {
  const char* name;
  std::vector<int64_t> lengths;
};

struct Heads {
  int64_t query, key, width;
};

struct Case {
  Pack pack;
  Heads heads;
  bool causal;
};

Tensor by_segments(const Tensor& q, const Tensor& k, const Tensor& v, const Case& c) {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t n : c.pack.lengths) {
    const auto heads = [&](const Tensor& x, int64_t count) {
      return x.narrow(0, begin, n).view({1, n, count, c.heads.width}).transpose(1, 2);
    };
    const Tensor out =
        at::scaled_dot_product_attention(heads(q, c.heads.query), heads(k, c.heads.key), heads(v, c.heads.key), {}, 0.0,
                                         c.causal, std::nullopt, c.heads.query != c.heads.key);
    parts.push_back(out.transpose(1, 2).reshape({n, -1}));
    begin += n;
  }
  return at::cat(parts);
}

enum class Way { fused, composed, sdpa };

void run(benchmark::State& state, const Case& c, Way way, bool backward) {
  const ScopedPieces scope(way == Way::composed ? Pieces::composed : Pieces::fused);
  at::manual_seed(1);
  int64_t rows = 0;
  std::vector<AttentionRange> ranges;
  for (const int64_t n : c.pack.lengths) {
    ranges.push_back({rows, n, rows, n});
    rows += n;
  }
  VarlenShape shape;
  shape.heads = c.heads.query;
  shape.kv_heads = c.heads.key;
  shape.head_dim = c.heads.width;
  shape.causal = c.causal;
  shape.scale = 1.0 / std::sqrt(static_cast<double>(c.heads.width));
  const int64_t q_width = c.heads.query * c.heads.width, kv_width = c.heads.key * c.heads.width;
  const Tensor fused = at::randn({rows, q_width + 2 * kv_width});  // as a projection leaves them
  const Tensor q = fused.narrow(1, 0, q_width).detach().requires_grad_(backward);
  const Tensor k = fused.narrow(1, q_width, kv_width).detach().requires_grad_(backward);
  const Tensor v = fused.narrow(1, q_width + kv_width, kv_width).detach().requires_grad_(backward);
  const Tensor gradient = at::randn({rows, q_width});
  for (auto step : state) {
    const Tensor out =
        way == Way::sdpa ? by_segments(q, k, v, c) : varlen_attention(q, k, v, ranges, shape, nullptr, nullptr);
    if (backward) {
      benchmark::DoNotOptimize(torch::autograd::grad({out}, {q, k, v}, {gradient})[0].const_data_ptr());
    } else {
      benchmark::DoNotOptimize(out.const_data_ptr());
    }
  }
  const double products = backward ? 7 : 2;
  state.counters["flops"] =
      benchmark::Counter(products * 2.0 * static_cast<double>(q_width) * attention_cells(ranges, c.causal, 0),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void register_case(const Case& c, bool backward) {
  const std::string shape =
      std::to_string(c.heads.width) + "x" + std::to_string(c.heads.query) + "x" + std::to_string(c.heads.key);
  for (const auto& [way, kind] :
       {std::pair{Way::fused, "/fused"}, {Way::composed, "/composed"}, {Way::sdpa, "/sdpa"}}) {
    const std::string name = std::string("attention/") + c.pack.name + (c.causal ? "/causal/" : "/full/") + shape +
                             (backward ? "/both/" : "/forward/") + std::to_string(at::get_num_threads()) + kind;
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, way = way](benchmark::State& state) { run(state, c, way, backward); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void register_all() {
  const Pack ragged{"ragged", {17, 250, 64, 7, 333, 128, 31, 500, 90, 1, 180}};
  const Pack small{"short", std::vector<int64_t>(40, 24)}, one{"one", {1000}};
  for (const bool causal : {true, false}) {
    for (const bool backward : {false, true}) {
      for (const Heads& heads :
           std::vector<Heads>{{8, 8, 16}, {8, 2, 64}, {9, 3, 64}, {9, 3, 80}, {8, 2, 128}, {4, 4, 256}}) {
        register_case({ragged, heads, causal}, backward);
      }
      register_case({small, {9, 3, 64}, causal}, backward);
      register_case({one, {8, 2, 64}, causal}, backward);
    }
  }
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  loom::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
