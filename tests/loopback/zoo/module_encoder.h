#pragma once
// An ordinary torch::nn::Module as an encoder. In a file of its own because torch/nn.h takes long to compile.
#include <memory>

#include "core/nn/declare.h"
#include "tests/loopback/zoo/zoo.h"

namespace loom::test {

std::shared_ptr<Encoder> make_module_encoder(const Declarer& d, const ZooOptions& options);

}  // namespace loom::test
