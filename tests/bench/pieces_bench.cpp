// Every fused piece against its composition of ATen operations, forward and backward, in the shapes of the bench's
// language model and encoder: 2,048 rows. A benchmark is named piece/shape/fused or piece/shape/composed; run.py pairs
// them. Attention has a file of its own.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/gradient_sink.h"
#include "core/nn/ops/linear.h"
#include "core/nn/ops/log_probs.h"
#include "core/nn/ops/norm.h"
#include "core/nn/ops/pieces.h"
#include "core/nn/rotary.h"
#include "core/train/update_kernels.h"
#include "tests/support/bind.h"

namespace loom {
namespace {

constexpr int64_t kRows = 2048, kWidth = 512, kHidden = 1408, kVocab = 8192;
constexpr double kEps = 1e-6;

// Takes gradients where a training step would: into memory that exists.
class Sum final : public GradientSink {
 public:
  explicit Sum(const Tensor& like) : sum_(at::zeros_like(like)) {}
  GradientTarget open() override { return {sum_, true}; }

 private:
  Tensor sum_;
};

Tensor drawn(std::vector<int64_t> shape, double scale = 1) {
  return (at::randn(shape) * scale).set_requires_grad(true);
}

// Inputs of a piece, made once, and what is computed of them.
struct Piece {
  std::vector<Tensor> inputs;  // whose gradients are cleared after every pass
  std::function<std::vector<Tensor>()> forward;
  bool equal_gradients = false;  // one for every element of an output, as the sum of a loss gives
};

// A parameter, with a sink where the pieces are fused.
class Parameter {
 public:
  Parameter(std::vector<int64_t> shape, Pieces pieces)
      : value_(drawn(std::move(shape), 0.02)), sink_(std::make_shared<Sum>(value_)), fused_(pieces == Pieces::fused) {}
  Weight weight() const { return {value_, fused_ ? sink_.get() : nullptr}; }
  const Tensor& value() const { return value_; }

 private:
  Tensor value_;
  std::shared_ptr<Sum> sink_;
  bool fused_;
};

using MakePiece = std::function<Piece(Pieces)>;

void run(benchmark::State& state, Pieces pieces, const MakePiece& make) {
  const ScopedPieces scope(pieces);
  const Piece piece = make(pieces);
  std::vector<Tensor> gradients;
  for (const Tensor& output : piece.forward()) {
    gradients.push_back(piece.equal_gradients ? at::ones_like(output) : at::randn_like(output));
  }
  for ([[maybe_unused]] const auto& step : state) {
    std::vector<Tensor> outputs = piece.forward();
    if (outputs.size() == 1) {
      outputs[0].backward(gradients[0]);
    } else {  // one pass over both
      ((outputs[0] * gradients[0]).sum() + (outputs[1] * gradients[1]).sum()).backward();
    }
    for (const Tensor& input : piece.inputs) input.mutable_grad().reset();
  }
}

void add(const std::string& name, const MakePiece& make) {
  for (const Pieces pieces : {Pieces::fused, Pieces::composed}) {
    const std::string full = name + (pieces == Pieces::fused ? "/fused" : "/composed");
    benchmark::RegisterBenchmark(full.c_str(), [=](benchmark::State& state) { run(state, pieces, make); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void add_norms() {
  for (const bool layer : {false, true}) {
    const std::string kind = layer ? "layer" : "rms";
    const auto bias_of = [layer](Pieces pieces) {
      return layer ? std::make_shared<Parameter>(std::vector<int64_t>{kWidth}, pieces) : nullptr;
    };
    add("norm/" + kind, [bias_of](Pieces pieces) {
      const Tensor x = drawn({kRows, kWidth});
      const Parameter weight({kWidth}, pieces);
      const auto bias = bias_of(pieces);
      return Piece{{x, weight.value()}, [=] {
                     return std::vector<Tensor>{norm(x, weight.weight(), bias ? bias->weight() : Weight{}, kEps)};
                   }};
    });
    add("add_norm/" + kind, [bias_of](Pieces pieces) {
      const Tensor x = drawn({kRows, kWidth}), delta = drawn({kRows, kWidth});
      const Parameter weight({kWidth}, pieces);
      const auto bias = bias_of(pieces);
      return Piece{{x, delta, weight.value()}, [=] {
                     AddedNorm both = add_norm(x, delta, weight.weight(), bias ? bias->weight() : Weight{}, kEps);
                     return std::vector<Tensor>{both.sum, both.normed};
                   }};
    });
  }
}

void add_linears() {
  const auto linear_of = [](const std::string& name, int64_t in, int64_t out, bool residual) {
    add(name, [=](Pieces pieces) {
      const Tensor x = drawn({kRows, in}), more = residual ? drawn({kRows, out}) : Tensor();
      const Parameter weight({out, in}, pieces), bias({out}, pieces);
      std::vector<Tensor> inputs{x, weight.value(), bias.value()};
      if (residual) inputs.push_back(more);
      return Piece{inputs, [=] { return std::vector<Tensor>{linear(x, weight.weight(), bias.weight(), more)}; }};
    });
  };
  linear_of("linear/qkv", kWidth, kWidth * 3 / 2, false);
  linear_of("linear/out_residual", kWidth, kWidth, true);
  linear_of("linear/gate_up", kWidth, 2 * kHidden, false);
  add("swiglu_linear/down", [](Pieces pieces) {
    const Tensor x = drawn({kRows, 2 * kHidden}), more = drawn({kRows, kWidth});
    const Parameter weight({kWidth, kHidden}, pieces);
    return Piece{{x, more, weight.value()},
                 [=] { return std::vector<Tensor>{swiglu_linear(x, weight.weight(), {}, more)}; }};
  });
  for (const Gelu gelu : {Gelu::exact, Gelu::tanh}) {
    add(gelu == Gelu::exact ? "gelu_linear/exact" : "gelu_linear/tanh", [gelu](Pieces pieces) {
      const Tensor x = drawn({1568, 1536}), more = drawn({1568, 384});
      const Parameter weight({384, 1536}, pieces), bias({384}, pieces);
      return Piece{{x, more, weight.value(), bias.value()},
                   [=] { return std::vector<Tensor>{gelu_linear(x, gelu, weight.weight(), bias.weight(), more)}; }};
    });
  }
}

// The head: all logits at once beside ours, which never holds them. Rows have equal gradients in ordinary training, and
// their own where a loss weighs tokens.
void add_log_probs() {
  for (const bool equal : {true, false}) {
    add(equal ? "log_probs/equal_gradients" : "log_probs/own_gradients", [equal](Pieces pieces) {
      const Tensor x = drawn({kRows, kWidth}), targets = at::randint(kVocab, {kRows}, at::kLong);
      const Parameter weight({kVocab, kWidth}, pieces);
      LogProbOptions options;
      if (!equal) options.gradients = HeadGradients::in_backward;
      return Piece{{x, weight.value()},
                   [=] { return std::vector<Tensor>{linear_log_probs(x, weight.weight(), targets, options)}; },
                   equal};
    });
  }
}

// Queries of four sequences; composed as `transformers` writes it.
void add_rotary() {
  constexpr int64_t kHeads = 8, kHalf = 32;
  add("rotary/queries", [](Pieces pieces) {
    const auto layer = std::make_shared<test::BoundLayer>();
    layer->partitions()[""] = test::segments_of({512, 512, 512, 512});
    const Rotary rotary(2 * kHalf);
    const Tensor x = drawn({kRows, kHeads * 2 * kHalf});
    const Tensor positions = at::arange(512).repeat({4}).to(at::kFloat);
    const Tensor angles = at::outer(positions, at::pow(10000.0, at::arange(kHalf) * (-1.0 / kHalf))).repeat({1, 2});
    const Tensor cosines = angles.cos().unsqueeze(1), sines = angles.sin().unsqueeze(1);
    return Piece{{x}, [=] {
                   if (pieces == Pieces::fused) {
                     UnitContext context = layer->context();
                     return std::vector<Tensor>{rotary(x, context)};
                   }
                   const Tensor heads = x.view({kRows, kHeads, 2 * kHalf});
                   const Tensor turned = at::cat({-heads.narrow(2, kHalf, kHalf), heads.narrow(2, 0, kHalf)}, 2);
                   return std::vector<Tensor>{(heads * cosines + turned * sines).view_as(x)};
                 }};
  });
}

// The update of a buffer, on this thread; ATen's fused one beside it.
void adamw_bench(benchmark::State& state, bool fused) {
  const int64_t count = kWidth * kHidden;
  Tensor weight = at::randn({count}), gradient = at::randn({count}), mean = at::zeros({count}),
         square = at::zeros({count});
  std::vector<Tensor> weights{weight}, gradients{gradient}, means{mean}, squares{square}, none, steps{at::ones({})};
  const kernels::AdamWConstants<float> constants{1, 1 - 1e-6F, 0.1F, 0.999F, 0.001F, 1e-4F, 0.0316F, 1e-8F};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for ([[maybe_unused]] const auto& step : state) {
    if (fused) {
      kernels::adamw(weight.data_ptr<float>(), gradient.data_ptr<float>(), mean.data_ptr<float>(),
                     square.data_ptr<float>(), count, constants);
    } else {
      at::_fused_adamw_(weights, gradients, means, squares, none, steps, 1e-4, 0.9, 0.999, 0.01, 1e-8, false, false);
    }
    benchmark::ClobberMemory();
  }
  at::set_num_threads(threads);
}

void add_adamw() {
  for (const bool fused : {true, false}) {
    benchmark::RegisterBenchmark(fused ? "adamw/one_thread/fused" : "adamw/one_thread/composed",
                                 [fused](benchmark::State& state) { adamw_bench(state, fused); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void register_all() {
  add_norms();
  add_linears();
  add_log_probs();
  add_rotary();
  add_adamw();
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  loom::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
