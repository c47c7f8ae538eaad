#pragma once
// Unit buffers with made-up parameters, for tests of what works on buffers alone.
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/checkpoint/box_view.h"
#include "core/parallel/unit_buffer.h"

namespace loom::test {

inline BufferEntry entry(const std::string& name, std::vector<int64_t> shape) {
  BufferEntry e;
  e.name = name;
  e.numel = 1;
  for (int64_t size : shape) e.numel *= size;
  e.decay = shape.size() > 1;
  e.shape = std::move(shape);
  return e;
}

// Two trainable buffers of two components and a frozen one; odd sizes, one entry larger than a chunk. On several ranks
// each holds its parts.
class Buffers {
 public:
  explicit Buffers(at::ScalarType type, Sharding sharding = {}) : sharding_(std::move(sharding)) {
    add("blocks.0",
        {entry("encoders.image.blocks.0.qkv.weight", {37, 13}), entry("encoders.image.blocks.0.norm.weight", {13})},
        type, true);
    add("embed",
        {entry("backbone.embed.weight", {211, 163}), entry("backbone.norm.weight", {163}),
         entry("backbone.head.bias", {5})},
        type, true);
    add("stem", {entry("encoders.audio.stem.weight", {7, 3})}, type, false);
  }

  void randomize(uint64_t seed, double scale = 1) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_current_seed(seed);
    for (auto& buffer : owned_) {
      for (size_t e = 0; e < buffer->entries().size(); ++e) {
        buffer->master_of(e).normal_(0, 1);
        if (buffer->trainable()) buffer->gradient_of(e).normal_(0, scale);
      }
    }
  }

  std::vector<UnitBuffer*> all() const {
    std::vector<UnitBuffer*> out;
    for (const auto& buffer : owned_) out.push_back(buffer.get());
    return out;
  }
  UnitBuffer& operator[](size_t i) { return *owned_.at(i); }

 private:
  void add(const std::string& unit, std::vector<BufferEntry> entries, at::ScalarType type, bool trainable) {
    UnitBuffer::Options options;
    options.trainable = trainable;
    options.master = options.compute = type;
    owned_.push_back(std::make_unique<UnitBuffer>(unit, std::move(entries), options, sharding_));
  }

  Sharding sharding_;
  std::vector<std::unique_ptr<UnitBuffer>> owned_;
};

// How `shard` ranks share a copy, seen from this rank.
inline Sharding sharding_on(Communicator& comm, int shard) {
  return {&comm, block_group(comm.rank(), comm.world(), shard), stride_group(comm.rank(), comm.world(), shard)};
}

// What lies at an entry, of a whole tensor.
inline at::Tensor part_of(const at::Tensor& whole, const BufferEntry& entry) {
  return box_view(whole, entry.box, whole_box(whole.sizes().vec()));
}

}  // namespace loom::test
