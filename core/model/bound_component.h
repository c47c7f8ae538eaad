#pragma once
// A component together with its storage: buffers per (unit, trainable or frozen, dtype), sharded over its parameter
// mesh, the binding of parameters to leaf tensors, states, and which streams are differentiable. One per component and
// process; tapes are made from it.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/component.h"
#include "core/nn/declare.h"
#include "core/nn/gradient_sink.h"
#include "core/nn/tensor_parallel.h"
#include "core/parallel/unit_buffer.h"

namespace loom {

struct BindOptions {
  at::ScalarType master = at::kFloat;
  at::ScalarType compute = at::kFloat;
  bool always_slab = false;
  std::string origin{};                                    // "plugin 'vit' (build/lib/...)", for messages
  bool recompute = false;                                  // every unit; attention results are kept
  std::vector<std::string> frozen;                         // full names, prefixes or globs
  Communicator* comm = nullptr;                            // null = one rank
  int shard = 0;                                           // ranks that share one copy of the weights; 0 = all
  int tile_queries = 0;                                    // of attention: see plan_attention
  int tp = 1;                                              // ranks that share split weights: see TensorGroup
  bool keep_weights = false, keep_gradients = false;       // whole, during a step: see UnitBuffer::Options
  c10::Device device = c10::Device(c10::DeviceType::CPU);  // Meta = sizes without memory, for a dry run
};

class BoundComponent {
 public:
  // `declarations` was filled by the component's constructor.
  BoundComponent(std::shared_ptr<Component> component, Declarations declarations, BindOptions options);
  ~BoundComponent();
  BoundComponent(const BoundComponent&) = delete;
  BoundComponent& operator=(const BoundComponent&) = delete;

  Component& component() { return *component_; }
  const Declarations& declarations() const { return declarations_; }
  const BindOptions& options() const { return options_; }
  const std::string& name() const { return declarations_.component; }
  int units() const { return static_cast<int>(declarations_.units.size()); }

  // Philox by full name and element index: the same under every layout.
  void init_weights(uint64_t seed);
  void start_gather(int unit, SlabPool& pool);  // every start is followed by a gather of the same unit
  void gather(int unit, SlabPool& pool);        // all buffers this unit reads
  void release(int unit, SlabPool& pool);
  uint64_t generation(int unit) const;  // of all that it reads
  // By Param index; of split parameters this rank's part, but in between hold_whole() and drop_whole() everything.
  const std::vector<Tensor>& bound() const { return whole_.empty() ? bound_ : whole_; }
  const TensorGroup* tensor_group() const { return tensor_.ranks > 1 && whole_.empty() ? &tensor_ : nullptr; }
  // Does a unit read parameters of which it has a part? Then all ranks of a tensor group run it together.
  bool splits(int unit) const;
  // All ranks, while all units are gathered: split parameters as one rank would have them, without gradients.
  void hold_whole();
  void drop_whole() { whole_.clear(); }
  std::vector<int> trainable_params(int unit) const;  // Param indices that receive gradients
  // Gradients: into local memory as contributions come, by sinks or by accumulate(); reduced over ranks when the last
  // unit in backward order that reads a buffer is done; once per step over replicas.
  void zero_gradients();
  // By Param index, for the runs that a backward follows. Null where nothing can be added in place: frozen parameters,
  // and those whose gradients come in another dtype than they are summed in.
  const std::vector<GradientSink*>& sinks() const { return sinks_; }
  // Sinks may be opened, and take memory from `pool`, for the rest of the scope.
  class Sinking {
   public:
    Sinking(BoundComponent& component, SlabPool& pool) : component_(component) { component.sink_pool_ = &pool; }
    ~Sinking() { component_.sink_pool_ = nullptr; }
    Sinking(const Sinking&) = delete;
    Sinking& operator=(const Sinking&) = delete;

   private:
    BoundComponent& component_;
  };
  void accumulate(int param, const Tensor& gradient, SlabPool& pool);
  void reduce_gradients(int unit, SlabPool& pool);  // the last one stays under way
  void finish_gradients();

  bool trainable() const;  // any unit
  // Must gradients flow through unit's output streams, given whether its external inputs need them?
  bool unit_differentiable(int unit, bool inputs_need_grad) const;
  std::vector<std::unique_ptr<UnitBuffer>>& buffers() { return buffers_; }
  const std::vector<std::unique_ptr<UnitBuffer>>& buffers() const { return buffers_; }
  StateTable& states() { return states_; }
  void end_step();  // reduces contributions over ranks, lets the component update its states, clears contributions
  Communicator& comm() const { return *comm_; }
  int64_t params_total() const;
  int64_t params_trainable() const;
  int64_t largest_buffer_bytes() const;  // slab size that fits every buffer
  c10::Device device() const { return options_.device; }

 private:
  void check_groups();
  void add_buffer(int unit, bool trainable, bool split);
  Sharding sharding_of(bool split) const;
  bool is_split(size_t param) const { return tensor_.ranks > 1 && declarations_.params[param].split != Split::none; }
  BufferEntry entry_of(size_t param) const;
  struct Place {
    UnitBuffer* buffer = nullptr;
    size_t entry = 0;
  };
  class ParamSink;

  std::shared_ptr<Component> component_;
  Declarations declarations_;
  BindOptions options_;
  std::vector<std::unique_ptr<UnitBuffer>> buffers_;
  std::vector<Place> places_;                    // by Param index
  std::vector<std::vector<UnitBuffer*>> reads_;  // by unit
  UnitBuffer* reducing_ = nullptr;
  std::vector<std::vector<UnitBuffer*>> reduces_;  // by unit: buffers whose last contribution in a pass is its
  TensorGroup tensor_;
  std::vector<Tensor> bound_, whole_;
  std::vector<std::unique_ptr<GradientSink>> owned_sinks_;
  std::vector<GradientSink*> sinks_;  // by Param index
  SlabPool* sink_pool_ = nullptr;     // null = no backward is running
  StateTable states_;
  Communicator* comm_;
};

}  // namespace loom
