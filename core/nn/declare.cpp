#include "core/nn/declare.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/random.h"

namespace loom {

Init Init::fan_in(int64_t inputs) { return {Kind::normal, 1.0 / std::sqrt(static_cast<double>(inputs))}; }

int64_t ParamDecl::numel() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::string Declarer::full_name(std::string_view name) const {
  std::string full = out_->component;
  if (unit_ >= 0) full += "." + out_->units[unit_].name;
  if (!prefix_.empty()) full += "." + prefix_;
  return full + "." + std::string(name);
}

Declarer Declarer::unit(UnitDecl decl) const {
  for (const UnitDecl& other : out_->units) {
    if (other.name == decl.name) throw PluginError(concat(out_->component, ": two units are named '", decl.name, "'"));
  }
  out_->units.push_back(std::move(decl));
  Declarer inner(*out_);
  inner.unit_ = static_cast<int>(out_->units.size()) - 1;
  return inner;
}

Declarer Declarer::child(std::string_view name) const {
  Declarer inner = *this;
  if (!inner.prefix_.empty()) inner.prefix_ += ".";
  inner.prefix_ += name;
  return inner;
}

Declarer Declarer::child(std::string_view name, int64_t i) const { return child(concat(name, ".", i)); }

Param Declarer::param(std::string_view name, std::vector<int64_t> shape, Init init, ParamOptions options) const {
  const std::string full = full_name(name);
  if (unit_ < 0) throw PluginError(concat(full, ": a parameter must be declared inside a unit"));
  int64_t part_rows = 0;
  for (const Part& part : options.parts) part_rows += part.rows;
  if (!options.parts.empty() && part_rows != shape.front()) {
    throw PluginError(concat(full, ": its parts have ", part_rows, " rows in all, the parameter ", shape.front()));
  }
  for (const int64_t size : shape) {
    if (size <= 0) throw PluginError(concat(full, ": a dimension of size ", size));
  }
  for (const ParamDecl& other : out_->params) {
    if (other.name == full) throw PluginError(concat(full, ": declared twice; give one of them another name"));
  }
  ParamDecl decl;
  decl.name = full;
  decl.decay = shape.size() > 1;
  decl.shape = std::move(shape);
  decl.init = init;
  decl.split = options.split;
  decl.block = options.block;
  decl.shard_block = options.shard_block;
  decl.parts = std::move(options.parts);
  decl.home_unit = unit_;
  decl.users = {unit_};
  Param handle;
  handle.index_ = static_cast<int>(out_->params.size());
  out_->units[unit_].params.push_back(handle.index_);
  out_->params.push_back(std::move(decl));
  return handle;
}

Param Declarer::adopt(std::string_view name, Tensor tensor) const {
  std::vector<int64_t> shape = tensor.sizes().vec();
  if (shape.empty()) throw PluginError(concat(full_name(name), ": a parameter without dimensions cannot be adopted"));
  const Param handle = param(name, std::move(shape), Init::zeros());
  out_->params[handle.index()].adopted = std::move(tensor);
  return handle;
}

void Declarer::use(Param param) const {
  if (unit_ < 0 || !param.declared())
    throw PluginError(concat(out_->component, ": use() outside a unit, or of an undeclared parameter"));
  out_->units[unit_].params.push_back(param.index());
  out_->params[param.index()].users.push_back(unit_);
}

Site Declarer::site(std::string_view name) const {
  const std::string full = full_name(name);
  for (const std::string& other : out_->sites) {
    if (other == full) throw PluginError(concat(full, ": two random sites of one name would draw equal numbers"));
  }
  out_->sites.push_back(full);
  return Site{name_id(full)};
}

const UnitDecl* whole_unit(const Declarations& declarations) {
  for (const UnitDecl& unit : declarations.units) {
    if (unit.mixes == Mixes::whole) return &unit;
  }
  return nullptr;
}

void Declarer::attends(const AttentionHeads& heads) const {
  AttentionHeads& fewest = out_->attention;
  if (fewest.heads == 0 || heads.heads < fewest.heads) fewest = heads;
}

State Declarer::state(std::string_view name, std::vector<int64_t> shape, Reduce reduce, Init init) const {
  const std::string full = full_name(name);
  if (unit_ < 0) throw PluginError(concat(full, ": a state must be declared inside a unit"));
  if (init.kind == Init::Kind::normal || init.kind == Init::Kind::uniform)
    throw PluginError(concat(full, ": a state starts at a constant"));
  for (const StateDecl& other : out_->states) {
    if (other.name == full) throw PluginError(concat(full, ": declared twice; give one of them another name"));
  }
  for (const ParamDecl& other : out_->params) {
    if (other.name == full) throw PluginError(concat(full, ": is a parameter, too; give the state another name"));
  }
  State handle;
  handle.index_ = static_cast<int>(out_->states.size());
  out_->states.push_back({full, std::move(shape), init, reduce, unit_});
  return handle;
}

}  // namespace loom
