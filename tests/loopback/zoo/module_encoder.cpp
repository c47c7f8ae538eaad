#include "tests/loopback/zoo/module_encoder.h"

#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/linear.h>

#include "core/model/from_module.h"

namespace loom::test {
namespace {

// Rows of an item see their mean: mixes `whole`.
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

class ModuleEncoder : public Encoder {
 public:
  ModuleEncoder(const Declarer& d, const ZooOptions& options)
      : inner_(from_module<MeanMixerImpl>(d, {"module", "media", "features", kZooMedia, kZooFeatures}, 5, kZooMedia, 9,
                                          kZooFeatures, options.dropout)) {}
  void run(int, Streams& s, UnitContext& ctx) override { inner_.run(s, ctx); }
  int64_t width() const override { return kZooFeatures; }
  int64_t media_width() const override { return kZooMedia; }
  ItemMeta measure(const MediaInfo& info) const override {
    const int64_t n = flat_tokens(info);
    return {n, n, static_cast<double>(n), {}};
  }
  Tensor prepare(const Media& media, const Philox&) const override { return media.data; }

 private:
  WrappedModule inner_;
};

}  // namespace

std::shared_ptr<Encoder> make_module_encoder(const Declarer& d, const ZooOptions& options) {
  return std::make_shared<ModuleEncoder>(d, options);
}

}  // namespace loom::test
