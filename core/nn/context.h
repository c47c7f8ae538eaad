#pragma once
// What a unit may ask for while it runs. Communication, packing, recompute and caches hide behind it; a layer that uses
// nothing else works on one rank and on a thousand.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/random.h"
#include "core/base/tensor.h"
#include "core/nn/attention.h"
#include "core/nn/declare.h"
#include "core/nn/gradient_sink.h"
#include "core/nn/kv_cache.h"
#include "core/nn/state_table.h"
#include "core/nn/varlen_attention.h"
#include "core/step/segments.h"
#include "core/step/site.h"
#include "core/step/tensor_group.h"

namespace loom {

class Communicator;
struct AttentionPlan;
struct GroupRows;
struct Route;
struct SplitAttention;

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

// Values that survive from a unit's first run to its recomputation, in order of request: the recomputation neither
// communicates nor computes attention again.
struct KeptValues {
  std::vector<Tensor> tensors;
  std::vector<VarlenResult> attention;
  std::vector<std::shared_ptr<const SplitAttention>> split_attention;
  std::vector<Tensor> moved;
};

using GroupPartitions = std::map<std::string, GroupRows, std::less<>>;  // core/nn/tensor_parallel.h

// What services did; tests assert that a case exercised what it claims.
struct ServiceCounters {
  int64_t split_segments = 0;  // attended to with other ranks
  int64_t halo_rows = 0;       // fetched from other ranks
  int64_t split_sums = 0;      // segment sums with other ranks
};

// Who exchanges what in attention, by partitions and heads: planned once per microbatch, used by every unit.
using AttentionPlans = std::map<std::string, std::shared_ptr<const AttentionPlan>, std::less<>>;

// What the core puts behind a context; one per run of a unit.
struct ContextState {
  const Declarations* declarations = nullptr;
  const std::vector<Tensor>* bound = nullptr;         // by Param index; undefined when not resident
  const std::vector<GradientSink*>* sinks = nullptr;  // by Param index; null = gradients go to autograd
  StateTable* states = nullptr;
  Communicator* comm = nullptr;         // null = one rank
  int tile_queries = 0;                 // how attention of split segments is divided: see plan_attention
  const TensorGroup* tensor = nullptr;  // null = split weights are whole
  const std::vector<int64_t>* group_loss_rows = nullptr;  // of a dry run: counted rows by member
  const GroupPartitions* groups = nullptr;                // of the rows of `partitions`; read where `tensor` is set
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
  ServiceCounters* counters = nullptr;
  AttentionPlans* attention_plans = nullptr;               // null = planned at every call
  c10::Device device = c10::Device(c10::DeviceType::CPU);  // of the component
};

class UnitContext {
 public:
  explicit UnitContext(ContextState state) : state_(std::move(state)) {}

  // The parameter, whole for this rank's share, in compute dtype.
  Tensor operator[](const Param& param) const;
  // The same for a piece (core/nn/ops) that adds to gradients in place; undefined for a parameter that was not
  // declared.
  Weight weight(const Param& param) const;
  const ParamDecl& declaration(const Param& param) const;
  // The state as of the end of the last step: the same for all microbatches of this one.
  Tensor operator[](const State& state) const;
  // Adds this rank's share to what end_step will see (training only; a recomputation adds nothing).
  void contribute(const State& state, const Tensor& value);
  // Packed attention over a partition (AttentionSpec); staged so that exchanges overlap with projections.
  Attention attention(AttentionSpec spec);
  // Windows of neighbours: row i of the result [rows', before + 1 + after, width] holds rows i - before ... i + after
  // of its segment, zeros beyond its ends; a convolution is then a Linear over them. Of every segment only the rows
  // whose index divides by `stride` are returned (a cut must fall on a multiple of it: say so in layout()).
  Tensor halo(const Tensor& x, int64_t before, int64_t after, int64_t stride = 1, std::string_view partition = "");
  // Sum or mean of x [rows, width] over each segment. Without `into`: [local segments, width], each the sum of the
  // whole segment wherever its rows lie. With it: the rows of that partition which lie here, one per segment (pooling).
  // The mean of an empty segment is zero.
  Tensor segment_sum(const Tensor& x, std::string_view partition = "");
  Tensor segment_mean(const Tensor& x, std::string_view partition = "");
  Tensor segment_sum(const Tensor& x, std::string_view partition, std::string_view into);
  Tensor segment_mean(const Tensor& x, std::string_view partition, std::string_view into);
  // Inverted dropout; a function of (seed, site, step, sample, item, row), so it survives packing, recompute and
  // resume.
  Tensor dropout(const Tensor& x, double p, Site site, std::string_view partition = "") const;
  // A seed of its own for (site, step, sample, item): for code that draws from a generator instead of a function.
  uint64_t seed_of(Site site, int64_t segment, std::string_view partition = "") const;
  // Adds a scalar to the named interior loss of this step; divided by the global denominator.
  void loss(std::string_view name, const Tensor& sum, Denominator denominator);
  // The value of t on the first run is the value in the recomputation too (random draws, results of exchanges).
  Tensor keep(const Tensor& t);

  // Tensor parallelism (core/nn/tensor_parallel.h), for layers with split weights; without it these change nothing.
  // gather_rows: a rank's own rows [rows, width] -> its group's; sum_rows: the sum of the members' [group rows, width],
  // of which each gets its own rows. Each is the other's adjoint.
  int tensor_ranks() const;
  BlockShare share(int64_t blocks) const;  // of a split weight's blocks
  Tensor gather_rows(const Tensor& x, std::string_view partition = "");
  Tensor sum_rows(const Tensor& partial, std::string_view partition = "");
  // The same for rows that are no partition's: each member has some (the supervised ones), and how many is asked for.
  struct CountedRows {
    std::shared_ptr<const Route> route;
    int64_t begin = 0, own = 0, all = 0;  // this rank's are all[begin, begin + own)
  };
  CountedRows count_rows(int64_t own);
  Tensor gather_rows(const Tensor& x, const CountedRows& rows);
  // Of values that every member has alike: this rank's own.
  Tensor own_rows(const Tensor& x, const CountedRows& rows);
  void gather_members(const char* service, const Tensor& mine, const Tensor& all);  // [n] -> [members, n]
  // The segments whose rows x has: this rank's, or between a column and a row split the group's.
  const Segments& segments_of(const Tensor& x, std::string_view partition = "") const;

  const Segments& segments(std::string_view partition = "") const;
  bool has_partition(std::string_view partition) const;
  Tensor positions(std::string_view partition = "") const;  // int64 [rows, position axes], on the component's device
  Tensor positions(const Segments& segments) const;
  Phase phase() const { return state_.phase; }
  bool training() const { return state_.phase == Phase::train; }

 private:
  friend class Attention;
  const UnitDecl& unit() const;
  void draw_mask(float* out, const Segments& s, int64_t width, double p, Site site) const;
  Tensor segment_ids(const Tensor& x, std::string_view partition, const char* service) const;
  Tensor total(const Tensor& x, std::string_view partition, const char* service);
  Tensor placed_into(const Tensor& totals, std::string_view partition, std::string_view into) const;
  std::string what(const char* service) const;  // "encoders.image.block: attention"
  void need(Mixes least, const char* service) const;
  // A differentiable move of rows between ranks; the first run's result is kept for the recomputation.
  Tensor moved(const char* service, const Route& route, const Tensor& source, int64_t rows);
  int rank() const;
  [[noreturn]] static void kept_too_little();
  template <class Value>
  static const Value& next(const std::vector<Value>& kept, size_t& index);
  const GroupRows& group(std::string_view partition) const;
  std::vector<int> tensor_group() const;
  Tensor gather_along(const Tensor& x, const Route& route, int64_t rows);
  Tensor remember(const Tensor& x, std::string_view partition, Tensor gathered);
  const Segments& attended(const std::string& partition, bool grouped) const;
  // Are these columns (of q, of k or v, of a fused projection) this rank's heads of the group's rows? Then `spec`
  // becomes the share.
  bool take_share(AttentionSpec& spec, int64_t columns, std::optional<AttentionInput> input) const;
  std::shared_ptr<const AttentionPlan> attention_plan(const AttentionSpec& spec, bool grouped) const;
  void check_attention(const AttentionSpec& spec, bool grouped, AttentionInput input, const Tensor& x) const;
  Tensor run_attention(Attention& of);
  bool cached(const AttentionSpec& spec) const;
  Tensor cached_attention(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v);

  ContextState state_;
  size_t next_kept_tensor_ = 0;
  size_t next_kept_attention_ = 0;
  size_t next_kept_split_ = 0;
  size_t next_kept_moved_ = 0;
  Tensor gathered_from_, gathered_;  // the last rows gathered
  std::string gathered_by_;          // their partition
};

// The next value that the first run kept.
template <class Value>
const Value& UnitContext::next(const std::vector<Value>& kept, size_t& index) {
  if (index >= kept.size()) kept_too_little();
  return kept[index++];
}

}  // namespace loom
