// Fits, registers, constructs, and throws while it runs.
#include <stdexcept>

#include "plugins/sdk/plugin.h"

namespace {

class ThrowsInRun : public loom::Encoder {
 public:
  explicit ThrowsInRun(const loom::Declarer& d) {
    loom::UnitDecl unit;
    unit.name = "only";
    unit.inputs = {{"media", 4, "", false}};
    unit.outputs = {{"features", 4, "", false}};
    static_cast<void>(d.unit(unit));
  }
  void run(int, loom::Streams&, loom::UnitContext&) override { throw std::runtime_error("the antenna is missing"); }
  int64_t width() const override { return 4; }
  int64_t media_width() const override { return 4; }
  loom::ItemMeta measure(const loom::MediaInfo&) const override { return {2, 2, 0, {}}; }
  loom::Tensor prepare(const loom::Media&, const loom::Philox&) const override { return at::zeros({2, 4}); }
};

}  // namespace

OMNILOOM_PLUGIN(throws_in_run, "0.1.0", "encoder:throws_in_run") {
  loom::ComponentSpec spec;
  spec.name = "throws_in_run";
  spec.kind = loom::ComponentKind::encoder;
  spec.doc = "a fixture";
  spec.capabilities.modality = "image";
  spec.encoder = [](const loom::ConfigValue&, loom::Declarer d) { return std::make_shared<ThrowsInRun>(d); };
  registrar.add(std::move(spec));
}
