#include "core/model/from_module.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <mutex>

#include "core/base/error.h"

namespace loom {
namespace {

// LibTorch's generator belongs to the process; ranks that are threads take turns between seeding and drawing.
std::mutex generator_mutex;

}  // namespace

WrappedModule::WrappedModule(const Declarer& d, Options options, uint64_t seed,
                             const std::function<std::shared_ptr<torch::nn::Module>()>& build,
                             std::function<Tensor(const Tensor&)> call)
    : options_(std::move(options)), call_(std::move(call)) {
  UnitDecl unit;
  unit.name = options_.unit;
  unit.inputs = {{options_.input, options_.in_width, "", false}};
  unit.outputs = {{options_.output, options_.out_width, "", false}};
  unit.mixes = Mixes::whole;
  const Declarer inner = d.unit(std::move(unit));
  random_ = inner.site("generator");
  {
    const std::lock_guard<std::mutex> lock(generator_mutex);
    at::manual_seed(seed);
    module_ = build();
  }
  for (const auto& named : module_->named_parameters()) inner.adopt(named.key(), named.value());
  if (module_->named_buffers().size() > 0) {
    throw PluginError(
        concat(options_.unit, ": the module has buffers (", module_->named_buffers()[0].key(),
               "), which are neither reduced over ranks nor saved; use a layer without running statistics"));
  }
}

void WrappedModule::run(Streams& s, UnitContext& ctx) const {
  const Segments& items = ctx.segments();
  const Tensor& rows = s[options_.input];
  module_->train(ctx.training());
  std::vector<Tensor> outputs;
  for (int64_t i = 0; i < items.count(); ++i) {
    if (items.length(i) == 0) continue;
    const std::lock_guard<std::mutex> lock(generator_mutex);
    at::manual_seed(ctx.seed_of(random_, i));
    outputs.push_back(call_(rows.narrow(0, items.offsets[i], items.length(i))));
  }
  s.set(options_.output, at::cat(outputs));
}

}  // namespace loom
