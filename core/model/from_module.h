#pragma once
// An ordinary torch::nn::Module as a one-unit component that mixes `whole`, so existing LibTorch code becomes a plugin
// without being rewritten. Its parameters move into the core's buffers; the module keeps using its own handles, which
// now point there. LibTorch's generator is seeded per (step, item), so dropout inside the module survives packing,
// recompute and resume. The module sees one item at a time: forward(rows [item rows, in_width]) -> [any rows,
// out_width].
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/tensor.h"
#include "core/nn/context.h"
#include "core/nn/declare.h"

namespace torch::nn {
class Module;
}

namespace loom {

class WrappedModule {
 public:
  struct Options {
    std::string unit = "module";
    std::string input = "media";      // stream read; its default partition says which rows are one item
    std::string output = "features";  // stream written
    int64_t in_width = 0;
    int64_t out_width = 0;
  };

  // `build` makes the module; LibTorch's generator is seeded for it, so its initial values are a function of `seed`.
  // `call` runs it on one item.
  WrappedModule(const Declarer& d, Options options, uint64_t seed,
                const std::function<std::shared_ptr<torch::nn::Module>()>& build,
                std::function<Tensor(const Tensor&)> call);
  void run(Streams& s, UnitContext& ctx) const;

 private:
  Options options_;
  Site random_;
  std::shared_ptr<torch::nn::Module> module_;
  std::function<Tensor(const Tensor&)> call_;
};

// Wraps module.forward: auto wrapped = from_module<MyImpl>(d, options, seed, args...).
template <class ModuleImpl, class... Args>
WrappedModule from_module(const Declarer& d, WrappedModule::Options options, uint64_t seed, Args... args) {
  auto holder = std::make_shared<std::shared_ptr<ModuleImpl>>();
  return WrappedModule(
      d, std::move(options), seed, [=] { return *holder = std::make_shared<ModuleImpl>(args...); },
      [holder](const Tensor& rows) { return (*holder)->forward(rows); });
}

}  // namespace loom
