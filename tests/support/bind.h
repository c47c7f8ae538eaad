#pragma once
// A layer by itself: its declarations bound to plain tensors and a context to run it in, without buffers, tape or
// component.
#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "core/nn/context.h"
#include "core/nn/declare.h"
#include "core/step/segments.h"
#include "tests/support/bits.h"

namespace loom::test {

// Segments of these lengths, of samples 1, 2, ..., at positions 0, 1, 2, ...
inline Segments segments_of(const std::vector<int64_t>& lengths) {
  Segments out;
  for (size_t i = 0; i < lengths.size(); ++i) out.append(lengths[i], {i + 1, 0, 0});
  return out;
}

class BoundLayer {
 public:
  BoundLayer() {
    declarations_.component = "test";
    unit_.emplace_back(Declarer(declarations_).unit(named("unit")));
  }
  BoundLayer(const BoundLayer&) = delete;
  BoundLayer& operator=(const BoundLayer&) = delete;

  // Inside the only unit.
  const Declarer& declarer() const { return unit_.front(); }
  const Declarations& declarations() const { return declarations_; }

  // Gives every parameter random values around its init (1 for ones, 0 otherwise).
  void bind(at::ScalarType dtype, double deviation = 0.5) {
    params_.clear();
    for (const ParamDecl& decl : declarations_.params) {
      const double centre = decl.init.kind == Init::Kind::ones ? 1.0 : 0.0;
      params_.push_back((at::randn(decl.shape, at::kDouble) * deviation + centre).to(dtype).requires_grad_());
    }
  }
  std::vector<at::Tensor>& params() { return params_; }
  Partitions& partitions() { return partitions_; }

  UnitContext context(Phase phase = Phase::train) {
    ContextState state;
    state.declarations = &declarations_;
    state.bound = &params_;
    state.partitions = &partitions_;
    state.phase = phase;
    state.unit = 0;
    return UnitContext(state);
  }

 private:
  static UnitDecl named(const std::string& name) {
    UnitDecl decl;
    decl.name = name;
    decl.mixes = Mixes::attention;
    return decl;
  }

  Declarations declarations_;
  std::vector<Declarer> unit_;
  std::vector<at::Tensor> params_;
  Partitions partitions_;
};

// |a - b| / |b|, of the whole tensors; 0 for two empty or two zero ones.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  const double difference = (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
  const double size = b.to(at::kDouble).norm().item<double>();
  return difference == 0 ? 0 : difference / (size > 0 ? size : 1e-300);
}

}  // namespace loom::test
