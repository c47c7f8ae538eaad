#pragma once
// The storage of one (unit, trainable or frozen, dtype): master weights and gradients, of which this rank holds a
// shard, and the gathered weights that layers see as leaf tensors. Parameters are placed one after another, on 64-byte
// borders, so that GEMMs see the alignment that a fresh allocation would have; the ranks of the shard group own equal
// consecutive parts of that memory, which keep declared blocks whole (RaggedShard of veScale-FSDP), so that one
// all-gather fills it and one reduce-scatter reads it. Parameters have names and boxes only here and in checkpoints;
// layers never see the buffer.
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/comm/communicator.h"
#include "core/mesh/box.h"
#include "core/parallel/slab_pool.h"

namespace loom {

// One box of a parameter. A rank that owns several boxes of it has several entries; a rank alone has one, the whole.
struct BufferEntry {
  int param = -1;              // index into Declarations::params
  std::string name;            // full name: "backbone.blocks.0.attention.qkv.weight"
  std::vector<int64_t> shape;  // of the box
  int64_t offset = 0;          // in elements
  int64_t numel = 0;
  bool decay = true;   // default for weight decay
  at::Tensor adopted;  // see ParamDecl::adopted
  std::vector<int64_t> global_shape{};
  Box box{};          // within the global tensor; no dimensions = the whole
  int64_t block = 0;  // rows that one rank owns together, counted from the first; 0 = it may be cut anywhere
  // Of a parameter that tensor parallelism splits: the parts of the global tensor that `shape` is made of, one after
  // another in dimension `cut`. Empty = the whole.
  std::vector<Box> parts{};
  int64_t cut = 0;
};

// Who shares the weights. An empty group = this rank alone.
struct Sharding {
  Communicator* comm = nullptr;  // null = one rank
  RankGroup shard;               // hold one copy together
  RankGroup replicate;           // hold the same part of other copies
};

struct GradientPlace {
  at::Tensor sum;
  bool fresh = false;  // nothing was added yet and it holds anything: overwrite
};

// Offsets for whole parameters, and equal consecutive parts for `ranks` owners whose borders fall between blocks: the
// smallest part size for which that is possible (mechanisms of veScale-FSDP, section 4.2). Parts and offsets are
// multiples of `align` elements. Returns the elements of one part; the memory is ranks times that.
int64_t place_params(std::vector<BufferEntry>& params, int ranks, int64_t align);

class UnitBuffer {
 public:
  struct Options {
    bool trainable = true;
    at::ScalarType master = at::kFloat;
    at::ScalarType compute = at::kFloat;
    bool always_slab = false;  // copy into a slab even where the master could be used in place
    c10::Device device = c10::Device(c10::DeviceType::CPU);  // where all of it lies; Meta = sizes without memory
    bool keep_weights = false;    // gathered once per generation instead of once per use; memory for the whole unit
    bool keep_gradients = false;  // of whole parameters, summed over the passes of a step and reduced once
  };

  // `params` are whole parameters; offsets are assigned here.
  UnitBuffer(std::string unit, std::vector<BufferEntry> params, Options options, Sharding sharding = {});
  ~UnitBuffer();
  UnitBuffer(const UnitBuffer&) = delete;
  UnitBuffer& operator=(const UnitBuffer&) = delete;

  const std::string& unit() const { return unit_; }
  bool trainable() const { return options_.trainable; }
  bool sharded() const { return sharding_.shard.size() > 1; }
  // Whole parameters, with offsets into the gathered memory.
  const std::vector<BufferEntry>& params() const { return params_; }
  // What this rank owns, with offsets into master and gradient.
  const std::vector<BufferEntry>& entries() const { return entries_; }
  int copies() const { return sharding_.replicate.empty() ? 1 : static_cast<int>(sharding_.replicate.size()); }
  int64_t numel() const { return numel_; }   // of this rank's part, padding included
  int64_t padding() const;                   // elements of the gathered memory that are no parameter
  bool counted() const { return counted_; }  // does this rank's part enter global sums (is it replica 0)?

  at::Tensor& master() { return master_; }  // [numel], master dtype
  // [numel], master dtype; made on first use; undefined when frozen. What received nothing in this step reads as zero.
  at::Tensor& gradient();
  at::Tensor master_of(size_t entry) const;  // shaped view
  at::Tensor gradient_of(size_t entry);

  // Makes the weights readable in compute dtype; nested calls count. start_gather only starts, gather completes (and
  // starts if nobody did); every start is followed by a gather. All ranks of the shard group must do the same in the
  // same order. `generation` names the values they hold.
  void start_gather(SlabPool& pool);
  void gather(SlabPool& pool);
  void release(SlabPool& pool);
  bool resident() const { return users_ > 0; }
  uint64_t generation() const { return generation_; }
  void master_written() { ++generation_; }  // the optimizer or a checkpoint changed the master
  const at::Tensor& weight(size_t param) const { return weights_[param]; }  // leaf; valid while resident
  bool in_place() const { return in_place_; }
  c10::Device device() const { return options_.device; }
  int64_t slab_bytes() const;  // largest piece of memory that it asks the pool for
  int64_t gathered_bytes() const;

  // Gradients. Contributions of a pass (of all passes of a step when they are kept) are summed in local memory for
  // whole parameters, then reduce-scattered into the gradient once, by all ranks of the group, whether they contributed
  // or not; then, once per step, summed over replicas. Nothing is cleared ahead: a parameter's first contribution
  // overwrites, and what never had one is cleared before it is read.
  void zero_gradient();  // a new step
  // Where the caller adds one contribution, at once: the parameter's shape, master dtype.
  GradientPlace open_gradient(size_t param, SlabPool& pool);
  void add_gradient(size_t param, const at::Tensor& gradient, SlabPool& pool);
  void reduce_gradient(SlabPool& pool);  // starts; whoever reads the gradient waits
  void finish_reduce();                  // waits, and gives the memory of the local sum back
  void finish_gradient();

 private:
  void own_entries(int64_t first);
  void begin_gather(SlabPool& pool);
  bool current() const { return options_.keep_weights && slab_.defined() && filled_generation_ == generation_; }
  void make_kept_gradient();
  void reduce_over_shard(bool contributes);
  void make_local_gradient(SlabPool& pool);
  void make_gradient();
  void clear_padding(const at::Tensor& flat) const;
  void clear_unwritten(const at::Tensor& flat);

  std::string unit_;
  std::vector<BufferEntry> params_, entries_;
  Options options_;
  Sharding sharding_;
  int64_t numel_ = 0;
  bool in_place_ = true, counted_ = true;
  at::Tensor master_, gradient_;
  at::Tensor gathered_;              // flat, owns the storage object that saved tensors keep alive
  std::vector<at::Tensor> weights_;  // views of gathered_, leaves
  at::Tensor filling_;               // view of the slab while a gather is under way
  Pending pending_;
  bool started_ = false;
  int users_ = 0;
  at::Tensor slab_, gradient_slab_;  // bytes; undefined when the pool has them
  Pending reducing_;                 // until it ends, these are in use
  at::Tensor reduced_, reduced_slab_;
  SlabPool* reduced_pool_ = nullptr;
  at::Tensor local_gradient_;      // whole parameters, of the running pass; view of gradient_slab_ when sharded
  std::vector<bool> written_;      // by parameter: does the local gradient hold a sum (of the pass; of the step alone)?
  std::vector<bool> contributed_;  // by parameter, in the running pass
  bool all_written_ = false;
  bool fresh_ = true;  // of the gradient over ranks: nothing was reduced into it in this step
  uint64_t generation_ = 1;
  uint64_t filled_generation_ = 0;  // of the values that the slab holds
  at::Tensor seen_[2];              // of Fault::stale_weights: this rank's part as of the last two generations gathered
  uint64_t seen_generation_ = 0;
};

}  // namespace loom
