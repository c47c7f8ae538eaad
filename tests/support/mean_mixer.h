#pragma once
// An ordinary torch::nn::Module for tests of from_module. Rows of an item see their mean, so it mixes `whole`.
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace loom::test {

struct MeanMixerImpl : torch::nn::Module {
  MeanMixerImpl(int64_t in, int64_t hidden, int64_t out, double drop)
      : first(in, hidden), second(hidden, out), p(drop) {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto h = torch::nn::functional::dropout(
        first(x).tanh(), torch::nn::functional::DropoutFuncOptions().p(p).training(is_training()));
    return second(h + h.mean(0, true));
  }
  torch::nn::Linear first, second;
  double p;
};

}  // namespace loom::test
