// One entry per unit run. An entry keeps either the unit's autograd graph or, under recompute, its inputs and the
// values of services only. What is differentiable follows from declarations and the plan, never from what a tensor
// happens to be.
#include "core/model/tape.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/error.h"
#include "core/nn/flops.h"
#include "core/nn/tensor_parallel.h"

namespace loom {
namespace {

// What LibTorch says about an operation that needs values, of which a dry run's tensors have none, in our words. Empty
// for any other error.
std::string without_values(const std::string& line) {
  if (line.find("data is not allocated yet") != std::string::npos)
    return "it reads or writes the memory of a tensor by itself (data_ptr)";
  if (line.find("Meta") == std::string::npos) return "";
  size_t begin = line.find("aten::");
  if (begin == std::string::npos) begin = 0;
  const size_t end = std::min(line.find(": attempted", begin), line.find('\'', begin));
  if (line.find("_local_scalar_dense") != std::string::npos) return "it asks a tensor for its value (item)";
  return end == std::string::npos ? line : line.substr(begin, end - begin) + " has no implementation for them";
}

// Nobody else sees this memory, so it may be written.
bool owned(const Tensor& x) {
  return x.use_count() == 1 && x.has_storage() && x.storage().use_count() == 1 && x.is_non_overlapping_and_dense();
}

// sum += gradient without new memory where either of them is ours.
void add_into(Tensor& sum, Tensor gradient) {
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (sum.scalar_type() != gradient.scalar_type()) {
    sum = sum + gradient;
  } else if (owned(sum)) {
    sum.add_(gradient);
  } else if (owned(gradient)) {
    sum = gradient.add_(sum);
  } else {
    sum = sum + gradient;
  }
}

// Autograd gives the operations of a GPU to a thread of its own; observers and counters know only this one.
class OnThisThread {
 public:
  OnThisThread() : before_(state().get_multithreading_enabled()) { state().set_multithreading_enabled(false); }
  ~OnThisThread() { state().set_multithreading_enabled(before_); }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool before_;
};

}  // namespace

struct Tape::Entry {
  int unit = -1;
  bool empty = false;  // no rows: was not run
  bool differentiable = false;
  Streams streams;  // inputs as leaves; after run_unit the outputs too
  std::vector<std::string> inputs;
  std::map<std::string, Tensor, std::less<>> outputs;  // with their graph, when it was kept
  std::vector<InteriorLoss> losses;
  KeptValues kept;
  uint64_t generation = 0;
  bool held = false;  // its weights stayed gathered
};

Tape::Tape(BoundComponent& component, SlabPool& pool, TapeContext context)
    : component_(component), pool_(pool), context_(context) {}

Tape::~Tape() {
  for (const Entry& entry : entries_) {
    if (entry.held) component_.release(entry.unit, pool_);
  }
}

TapeCounters& TapeCounters::operator+=(const TapeCounters& more) {
  units_run += more.units_run;
  units_recomputed += more.units_recomputed;
  units_skipped_empty += more.units_skipped_empty;
  services.split_segments += more.services.split_segments;
  services.halo_rows += more.services.halo_rows;
  services.split_sums += more.services.split_sums;
  return *this;
}

void Tape::injected(std::string_view stream, bool needs_grad) {
  bool& flag = differentiable_[std::string(stream)];
  flag = flag || needs_grad;
}

Tensor Tape::empty_output(const StreamDecl& decl, const Entry& entry) const {
  at::TensorOptions options = at::TensorOptions(component_.options().compute).device(component_.device());
  for (const auto& [name, value] : entry.streams.all()) {
    if (value.is_floating_point()) options = options.dtype(value.scalar_type());
  }
  return decl.width > 0 ? at::zeros({0, decl.width}, options) : at::zeros({0}, options);
}

std::string Tape::unit_name(int unit) const {
  return concat(component_.name(), ".", component_.declarations().units[unit].name);
}

std::string Tape::who(int unit) const { return concat(unit_name(unit), " (", component_.options().origin, ")"); }

void Tape::guarded(int unit, const char* where, const std::function<void()>& body) const {
  const auto blame = [&](const std::string& text) {
    const std::string line = text.substr(0, text.find('\n'));
    if (const std::string what = component_.device().is_meta() ? without_values(line) : ""; !what.empty())
      throw PluginError(concat(who(unit), ": cannot be planned on tensors without memory: ", what));
    throw PluginError(concat(who(unit), " failed in ", where, ": ", line));
  };
  try {
    body();
  } catch (const PluginError& error) {
    throw PluginError(concat(who(unit), ": ", error.what()));
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    if (std::string_view(error.what_without_backtrace()).find("can't allocate memory") != std::string_view::npos) throw;
    blame(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    blame(error.what());
  } catch (...) {
    blame("an exception that is no std::exception");
  }
}

void Tape::check_output(const Entry& entry, const StreamDecl& output, const Tensor& value) const {
  if (output.width == 0) return;
  if (value.dim() != 2 || value.size(1) != output.width) {
    throw PluginError(concat(who(entry.unit), ": stream '", output.name, "' was declared [rows, ", output.width,
                             "], found ", value.sizes()));
  }
  const auto partition = context_.partitions->find(output.partition);
  if (partition == context_.partitions->end()) {
    throw PluginError(concat(who(entry.unit), ": stream '", output.name, "' was declared on partition '",
                             output.partition, "', which the layout does not have"));
  }
  // A head's logits have the rows that it was asked for.
  if (value.size(0) == partition->second.rows()) return;
  if (entry.streams.has("loss_rows") && value.size(0) == entry.streams["loss_rows"].size(0)) return;
  throw PluginError(concat(who(entry.unit), ": stream '", output.name, "' has ", value.size(0),
                           " rows, its partition '", output.partition, "' has ", partition->second.rows()));
}

void Tape::run_unit(Entry& entry, bool recomputing) {
  const bool grad = entry.differentiable && (recomputing || !component_.options().recompute);
  const c10::AutoGradMode mode(grad);
  ContextState state;
  state.declarations = &component_.declarations();
  state.bound = &component_.bound();
  if (grad) state.sinks = &component_.sinks();
  state.states = &component_.states();
  state.comm = &component_.comm();
  state.tile_queries = component_.options().tile_queries;
  state.partitions = context_.partitions;
  state.tensor = component_.tensor_group();
  state.groups = context_.groups;
  state.group_loss_rows = context_.group_loss_rows;
  state.phase = context_.phase;
  state.seed = context_.seed;
  state.step = context_.step;
  state.unit = entry.unit;
  state.recomputing = recomputing;
  state.kept = entry.differentiable && component_.options().recompute ? &entry.kept : nullptr;
  state.cache = context_.cache;
  state.cache_site = &cache_site_;
  entry.losses.clear();
  state.losses = &entry.losses;
  state.counters = &counters_.services;
  state.attention_plans = &attention_plans_;
  state.device = component_.device();
  UnitContext ctx(state);
  Streams streams;
  for (const std::string& name : entry.inputs) streams.set(name, entry.streams[name]);
  guarded(entry.unit, "run", [&] { component_.component().run(entry.unit, streams, ctx); });

  const UnitDecl& decl = component_.declarations().units[entry.unit];
  entry.outputs.clear();
  for (const StreamDecl& output : decl.outputs) {
    if (!streams.has(output.name)) {
      if (output.optional) continue;
      throw PluginError(concat(who(entry.unit), ": did not set its output stream '", output.name, "'"));
    }
    const Tensor& value = streams[output.name];
    check_output(entry, output, value);
    entry.outputs.emplace(output.name, value);
  }
}

bool Tape::backward_reads_weights(int unit) const {
  return component_.options().recompute || component_.declarations().units[unit].backward_reads_weights;
}

// Where weights are split a rank whose tensor group has rows takes part, with or without rows of its own.
bool Tape::has_rows(int unit, const StreamDecl& stream, const Tensor& value) const {
  if (!component_.splits(unit)) return value.size(0) > 0;
  const auto found = context_.groups->find(stream.partition);
  return found != context_.groups->end() && found->second.segments.rows() > 0;
}

void Tape::forward(int unit, StreamMap& streams) {
  const UnitDecl& decl = component_.declarations().units.at(unit);
  const ObservedAction action(context_.observer, StepAction::forward, component_.name(), decl.name);
  Entry entry;
  entry.unit = unit;
  bool inputs_need_grad = false, rows = decl.inputs.empty();
  for (const StreamDecl& input : decl.inputs) {
    const auto found = streams.find(input.name);
    if (found == streams.end()) {
      if (input.optional) continue;
      throw PluginError(concat(who(entry.unit), ": its input stream '", input.name, "' does not exist here"));
    }
    Tensor leaf = found->second.detach();
    rows = rows || has_rows(unit, input, leaf);
    const auto known = differentiable_.find(input.name);
    const bool needs = leaf.is_floating_point() && context_.phase == Phase::train &&
                       (known != differentiable_.end() ? known->second : context_.inputs_need_grad);
    leaf.requires_grad_(needs);
    inputs_need_grad = inputs_need_grad || needs;
    entry.inputs.push_back(input.name);
    entry.streams.set(input.name, std::move(leaf));
  }
  entry.differentiable = context_.phase == Phase::train && component_.unit_differentiable(unit, inputs_need_grad);
  entry.empty = !rows;
  // A rank without rows does not run the unit; its shard is needed by the others all the same.
  const bool collective = component_.comm().world() > 1;
  const bool gathers = !entry.empty || collective;
  if (gathers) component_.gather(unit, pool_);
  // Two: while the last one is undone, the one before it is in memory anyway.
  entry.held = gathers && entry.differentiable && context_.backward_follows && unit + 2 >= component_.units() &&
               backward_reads_weights(unit);
  if (collective && unit + 1 < component_.units()) component_.start_gather(unit + 1, pool_);
  entry.generation = component_.generation(unit);
  if (entry.empty) {
    ++counters_.units_skipped_empty;
    for (const StreamDecl& output : decl.outputs) streams.insert_or_assign(output.name, empty_output(output, entry));
  } else {
    run_unit(entry, false);
    ++counters_.units_run;
    for (auto& [name, value] : entry.outputs) streams.insert_or_assign(name, value.detach());
    for (InteriorLoss& loss : entry.losses) losses_.push_back({loss.name, loss.sum.detach(), loss.denominator});
    if (!entry.differentiable || component_.options().recompute) {
      entry.outputs.clear();
      entry.losses.clear();
    }
  }
  if (gathers && !entry.held) component_.release(unit, pool_);
  for (const StreamDecl& output : decl.outputs) differentiable_[output.name] = entry.differentiable;
  if (context_.phase == Phase::train) entries_.push_back(std::move(entry));
}

void Tape::backward(int unit, StreamMap& gradients) {
  LOOM_CHECK(!entries_.empty() && entries_.back().unit == unit, component_.name(), ": backward of unit ", unit,
             " out of order");
  Entry entry = std::move(entries_.back());
  entries_.pop_back();
  const UnitDecl& decl = component_.declarations().units[unit];
  StreamMap output_gradients;
  for (const StreamDecl& output : decl.outputs) {
    const auto found = gradients.find(output.name);
    if (found == gradients.end()) continue;
    output_gradients.insert(gradients.extract(found));
  }
  if (!entry.differentiable) return;
  const ObservedAction action(context_.observer, StepAction::backward, component_.name(), decl.name);
  const bool collective = component_.comm().world() > 1;
  const bool reads = (!entry.empty || collective) && backward_reads_weights(unit);
  if (reads) component_.gather(unit, pool_);
  if (entry.held) component_.release(unit, pool_);
  if (collective && !entries_.empty() && entries_.back().differentiable && backward_reads_weights(entries_.back().unit))
    component_.start_gather(entries_.back().unit, pool_);
  if (entry.empty) {
    for (const std::string& name : entry.inputs) {
      const Tensor& input = entry.streams[name];
      if (input.requires_grad()) gradients.try_emplace(name, at::zeros_like(input.detach()));
    }
    component_.reduce_gradients(unit, pool_);
    if (reads) component_.release(unit, pool_);
    return;
  }
  LOOM_CHECK(component_.generation(unit) == entry.generation, unit_name(unit),
             ": the weights changed between forward and backward");
  if (component_.options().recompute) {
    const ComputedAgain again;
    run_unit(entry, true);
    ++counters_.units_recomputed;
  }
  torch::autograd::variable_list roots, root_gradients, leaves;
  for (const auto& [name, value] : entry.outputs) {
    if (!value.requires_grad()) continue;
    const auto found = output_gradients.find(name);
    roots.push_back(value);
    root_gradients.push_back(found != output_gradients.end() ? found->second.to(value.scalar_type())
                                                             : at::zeros_like(value));
  }
  for (const InteriorLoss& loss : entry.losses) {
    if (!loss.sum.requires_grad()) continue;
    roots.push_back(loss.sum);
    root_gradients.push_back(at::full_like(loss.sum, loss_scale_ ? loss_scale_(loss.denominator) : 1.0));
  }
  std::vector<std::string> streams;
  for (const std::string& name : entry.inputs) {
    if (!entry.streams[name].requires_grad()) continue;
    streams.push_back(name);
    leaves.push_back(entry.streams[name]);
  }
  const std::vector<int> params = component_.trainable_params(unit);
  for (const int param : params) leaves.push_back(component_.bound()[param]);
  // Whatever autograd does not need any more goes as early as possible.
  output_gradients.clear();
  entry.outputs.clear();
  entry.losses.clear();
  entry.kept = {};
  if (!roots.empty() && !leaves.empty()) {
    torch::autograd::variable_list found;
    {
      const BoundComponent::Sinking sinking(component_, pool_);
      guarded(unit, "backward", [&] {
        const OnThisThread here;
        found = torch::autograd::grad(roots, leaves, root_gradients, false, false, true);
      });
    }
    roots.clear();
    root_gradients.clear();
    leaves.clear();
    entry.streams = {};
    for (size_t i = 0; i < streams.size(); ++i) {
      if (found[i].defined()) add_into(gradients[streams[i]], std::move(found[i]));
    }
    for (size_t i = 0; i < params.size(); ++i) {
      // Undefined: all of it went to the sink.
      Tensor gradient = std::move(found[streams.size() + i]);
      if (gradient.defined()) component_.accumulate(params[i], gradient, pool_);
    }
  }
  component_.reduce_gradients(unit, pool_);
  if (reads) component_.release(unit, pool_);
}

}  // namespace loom
