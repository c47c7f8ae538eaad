#pragma once
// What a unit may ask for while it runs. Communication, packing, recompute and caches hide behind it; a layer that uses
// nothing else works on one rank and on a thousand.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/random.h"
#include "core/base/tensor.h"
#include "core/nn/attention.h"
#include "core/nn/declare.h"
#include "core/nn/kv_cache.h"
#include "core/nn/varlen_attention.h"
#include "core/step/segments.h"
#include "core/step/site.h"

namespace loom {

using Partitions = std::map<std::string, Segments, std::less<>>;

// Named streams of a unit: its declared inputs on entry; it sets its declared outputs.
class Streams {
 public:
  const Tensor& operator[](std::string_view name) const;  // PluginError when absent
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  void set(std::string_view name, Tensor value) { values_.insert_or_assign(std::string(name), std::move(value)); }
  const std::map<std::string, Tensor, std::less<>>& all() const { return values_; }

 private:
  std::map<std::string, Tensor, std::less<>> values_;
};

struct InteriorLoss {
  std::string name;
  Tensor sum;  // scalar, not yet divided
  Denominator denominator = Denominator::rows;
};

// Values that survive from a unit's first run to its recomputation, in order of request.
struct KeptValues {
  std::vector<Tensor> tensors;
  std::vector<VarlenResult> attention;
};

// What the core puts behind a context; one per run of a unit.
struct ContextState {
  const Declarations* declarations = nullptr;
  const std::vector<Tensor>* bound = nullptr;  // by Param index; undefined when not resident
  const Partitions* partitions = nullptr;
  Phase phase = Phase::train;
  uint64_t seed = 0;
  int64_t step = 0;
  int unit = -1;
  bool recomputing = false;
  KeptValues* kept = nullptr;    // filled on the first run, read when recomputing; null = nothing is kept
  KvCache* cache = nullptr;      // generation only
  size_t* cache_site = nullptr;  // counts attention calls of a pass
  std::vector<InteriorLoss>* losses = nullptr;
};

class UnitContext {
 public:
  explicit UnitContext(ContextState state) : state_(std::move(state)) {}

  // The parameter, whole for this rank's share, in compute dtype.
  Tensor operator[](const Param& param) const;
  // Packed attention over a partition (AttentionSpec); staged so that exchanges overlap with projections.
  Attention attention(AttentionSpec spec);
  // Sum or mean of x [rows, width] over each segment: [segments, width]. The mean of an empty segment is zero.
  Tensor segment_sum(const Tensor& x, std::string_view partition = "") const;
  Tensor segment_mean(const Tensor& x, std::string_view partition = "") const;
  // Inverted dropout; a function of (seed, site, step, sample, item, row), so it survives packing, recompute and
  // resume.
  Tensor dropout(const Tensor& x, double p, Site site, std::string_view partition = "") const;
  // A seed of its own for (site, step, sample, item): for code that draws from a generator instead of a function.
  uint64_t seed_of(Site site, int64_t segment, std::string_view partition = "") const;
  // Adds a scalar to the named interior loss of this step; divided by the global denominator.
  void loss(std::string_view name, const Tensor& sum, Denominator denominator);
  // The value of t on the first run is the value in the recomputation too (random draws, results of exchanges).
  Tensor keep(const Tensor& t);

  const Segments& segments(std::string_view partition = "") const;
  bool has_partition(std::string_view partition) const;
  Tensor positions(std::string_view partition = "") const;  // int64 [rows, position axes]
  Phase phase() const { return state_.phase; }
  bool training() const { return state_.phase == Phase::train; }

 private:
  friend class Attention;
  std::vector<AttentionRange> ranges(const AttentionSpec& spec) const;
  Tensor run_attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v);
  Tensor cached_attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v);

  ContextState state_;
  size_t next_kept_tensor_ = 0;
  size_t next_kept_attention_ = 0;
};

}  // namespace loom
