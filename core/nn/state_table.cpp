#include "core/nn/state_table.h"

#include <ATen/ATen.h>

#include <limits>

#include "core/base/error.h"

namespace loom {
namespace {

double start_of(const Init& init) { return init.kind == Init::Kind::ones ? 1.0 : init.scale; }

}  // namespace

StateTable::StateTable(const std::vector<StateDecl>& states, c10::Device device) : decls_(states) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  for (const StateDecl& decl : decls_) {
    values_.push_back(at::full(decl.shape, start_of(decl.init), options));
    contributions_.push_back(at::empty(decl.shape, options));
  }
  clear_contributions();
}

const Tensor& StateTable::value(const State& state) const { return values_.at(static_cast<size_t>(state.index())); }

const Tensor& StateTable::contribution(const State& state) const {
  return contributions_.at(static_cast<size_t>(state.index()));
}

void StateTable::set(const State& state, const Tensor& value) {
  Tensor& mine = values_.at(static_cast<size_t>(state.index()));
  if (value.sizes() != mine.sizes()) {
    throw PluginError(concat(decls_[static_cast<size_t>(state.index())].name, ": has shape ", mine.sizes(), ", set to ",
                             value.sizes()));
  }
  mine.copy_(value.detach());
}

void StateTable::contribute(int state, const Tensor& value) {
  const StateDecl& decl = decls_.at(static_cast<size_t>(state));
  Tensor& sum = contributions_[static_cast<size_t>(state)];
  if (value.sizes() != sum.sizes())
    throw PluginError(concat(decl.name, ": has shape ", sum.sizes(), ", the contribution ", value.sizes()));
  const Tensor wide = value.detach().to(at::kDouble);
  if (decl.reduce == Reduce::sum) {
    sum.add_(wide);
  } else {
    sum.copy_(at::maximum(sum, wide));
  }
}

void StateTable::clear_contributions() {
  for (size_t i = 0; i < decls_.size(); ++i) {
    contributions_[i].fill_(decls_[i].reduce == Reduce::sum ? 0.0 : -std::numeric_limits<double>::infinity());
  }
}

}  // namespace loom
