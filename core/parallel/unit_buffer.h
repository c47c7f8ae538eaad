#pragma once
// The storage of one (unit, trainable or frozen, dtype): a flat master buffer, a flat gradient buffer when trainable,
// and the gathered weights that layers see as leaf tensors. Entries start on 64-byte borders, so GEMMs see the
// alignment that a fresh allocation would have. Parameters have names and boxes only here and in checkpoints; layers
// never see the buffer.
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/mesh/box.h"
#include "core/parallel/slab_pool.h"

namespace loom {

// One box of a parameter. A rank that owns several boxes of it has several entries; one rank has one, the whole.
struct BufferEntry {
  int param = -1;              // index into Declarations::params
  std::string name;            // full name: "backbone.blocks.0.attention.qkv.weight"
  std::vector<int64_t> shape;  // of the box
  int64_t offset = 0;          // in elements
  int64_t numel = 0;
  bool decay = true;   // default for weight decay
  at::Tensor adopted;  // see ParamDecl::adopted
  std::vector<int64_t> global_shape{};
  Box box{};  // within the global tensor; no dimensions = the whole
};

// Assigns offsets; returns the number of elements, padding included.
int64_t place_entries(std::vector<BufferEntry>& entries, int64_t align_elements);

class UnitBuffer {
 public:
  struct Options {
    bool trainable = true;
    at::ScalarType master = at::kFloat;
    at::ScalarType compute = at::kFloat;
    bool always_slab = false;  // copy into a slab even where the master could be used in place
  };

  UnitBuffer(std::string unit, std::vector<BufferEntry> entries, Options options);
  ~UnitBuffer();
  UnitBuffer(const UnitBuffer&) = delete;
  UnitBuffer& operator=(const UnitBuffer&) = delete;

  const std::string& unit() const { return unit_; }
  bool trainable() const { return options_.trainable; }
  const std::vector<BufferEntry>& entries() const { return entries_; }
  int64_t numel() const { return numel_; }

  at::Tensor& master() { return master_; }   // [numel], master dtype
  at::Tensor& gradient();                    // [numel], master dtype; made on first use; undefined when frozen
  at::Tensor master_of(size_t entry) const;  // shaped view
  at::Tensor gradient_of(size_t entry);

  // Makes the weights readable in compute dtype; nested calls count. `generation` names the values they hold.
  void gather(SlabPool& pool);
  void release(SlabPool& pool);
  bool resident() const { return users_ > 0; }
  uint64_t generation() const { return generation_; }
  void master_written() { ++generation_; }  // the optimizer or a checkpoint changed the master
  const at::Tensor& weight(size_t entry) const { return weights_[entry]; }  // leaf; valid while resident
  bool in_place() const { return in_place_; }
  int64_t gathered_bytes() const;

 private:
  std::string unit_;
  std::vector<BufferEntry> entries_;
  Options options_;
  int64_t numel_ = 0;
  bool in_place_ = true;
  at::Tensor master_, gradient_;
  at::Tensor gathered_;              // flat, owns the storage object that saved tensors keep alive
  std::vector<at::Tensor> weights_;  // views of gathered_, leaves
  int users_ = 0;
  void* slab_ = nullptr;
  uint64_t generation_ = 1;
};

}  // namespace loom
