#include "tests/loopback/zoo/module_encoder.h"

#include "core/model/from_module.h"
#include "tests/support/mean_mixer.h"

namespace loom::test {
namespace {

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
