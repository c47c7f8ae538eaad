#pragma once
// Values of a component's declared states and what the running step contributed to them. Values change in
// Component::end_step alone, from contributions that are summed (or maximised) over all microbatches and ranks, so they
// are equal under every layout.
#include <vector>

#include "core/base/tensor.h"
#include "core/nn/declare.h"

namespace loom {

class StateTable {
 public:
  explicit StateTable(const std::vector<StateDecl>& states, c10::Device device = c10::Device(c10::DeviceType::CPU));

  size_t size() const { return values_.size(); }
  const Tensor& value(const State& state) const;         // float64, in its declared shape
  const Tensor& contribution(const State& state) const;  // of the whole step; zeros (max: -inf) when nobody gave any
  void set(const State& state, const Tensor& value);     // copies; PluginError when the shape differs

  // Of the core: adds to the step's contribution.
  void contribute(int state, const Tensor& value);
  Tensor& value_at(size_t state) { return values_[state]; }
  Tensor& contribution_at(size_t state) { return contributions_[state]; }
  void clear_contributions();

 private:
  std::vector<StateDecl> decls_;
  std::vector<Tensor> values_, contributions_;
};

}  // namespace loom
