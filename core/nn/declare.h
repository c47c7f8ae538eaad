#pragma once
// A component declares, the core binds (design, idea 1). A layer's constructor says what it needs (name, global shape,
// init, how it splits); nothing is allocated. The core reads the Declarations, decides who holds which piece, and hands
// bound tensors in at run time through UnitContext. Handles (Param, Site) are plain indices.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"
#include "core/step/site.h"

namespace loom {

struct Init {
  enum class Kind { zeros = 1, ones, constant, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  // the constant, the standard deviation, or the bound

  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 1}; }
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init fan_in(int64_t inputs);  // normal with deviation 1 / sqrt(inputs)
};

// How tensor parallelism may cut a parameter: column = dim 0 (outputs), row = dim 1 (inputs).
enum class Split { none = 1, column, row };

// A named range of rows (dim 0) of a fused parameter: its own split, external name and adapter target.
struct Part {
  std::string name;
  int64_t rows = 0;
  Split split = Split::none;
  int64_t block = 1;  // rows that stay together (a head's width, say)
};

struct ParamDecl {
  std::string name;  // full dotted name within the component
  std::vector<int64_t> shape;
  Init init;
  Split split = Split::none;
  int64_t block = 1;
  int64_t shard_block = 0;  // rows that one rank owns together (of a quantised optimizer); 0 = it may be cut anywhere
  std::vector<Part> parts;  // empty, or covering dim 0 exactly
  bool decay = true;        // weight decay by default; vectors (one dimension) are exempt
  int home_unit = -1;       // whose buffer holds it
  std::vector<int> users;   // units that read it, in ascending order, home first declared
  Tensor adopted;           // of from_module only: the module's own tensor, rebound at gather

  int64_t numel() const;
};

// What a unit mixes between rows, from least to most. `halo`: neighbouring rows, through ctx.halo. `attention`: any
// rows of a segment, through the services of its context (attention, segment sums, halo). `whole`: anything within an
// item, by code of its own; the core never splits an item through it. A service that mixes more than the unit declares
// is a PluginError.
enum class Mixes { none = 1, halo, attention, whole };

// How contributions to a state are combined over microbatches and ranks.
enum class Reduce { sum = 1, max };

// State that is not a parameter: running statistics, a router's bias, scaling maxima. Kept in float64, saved with the
// weights, equal on every rank; changed once per step, in Component::end_step.
struct StateDecl {
  std::string name;  // full dotted name within the component
  std::vector<int64_t> shape;
  Init init;
  Reduce reduce = Reduce::sum;
  int unit = -1;
};

struct StreamDecl {
  std::string name;
  int64_t width = 0;      // columns; 0 = a vector of integers
  std::string partition;  // whose rows it has; "" = the default partition
  bool optional = false;  // absent in some phases
};

struct UnitDecl {
  std::string name;
  std::vector<StreamDecl> inputs;
  std::vector<StreamDecl> outputs;
  Mixes mixes = Mixes::none;
  bool cut_after = true;    // a legal stage cut
  std::vector<int> params;  // all that it reads, own and foreign
  // False: its backward reads none of its weights (an embedding table), so they are not gathered for it. A unit that
  // says so by mistake reads a null pointer where weights are sharded.
  bool backward_reads_weights = true;
};

struct AttentionHeads {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // 0 = there is no attention
};

struct Declarations {
  std::string component;  // its name in the recipe's terms: "encoders.image", "backbone"
  std::vector<UnitDecl> units;
  std::vector<ParamDecl> params;
  std::vector<StateDecl> states;
  std::vector<std::string> sites;
  AttentionHeads attention;  // of the layer that has fewest
};

// A unit that mixes whole items, so that none may be split; null = there is none.
const UnitDecl* whole_unit(const Declarations& declarations);

class Param {
 public:
  int index() const { return index_; }
  bool declared() const { return index_ >= 0; }

 private:
  friend class Declarer;
  int index_ = -1;
};

class State {
 public:
  int index() const { return index_; }
  bool declared() const { return index_ >= 0; }

 private:
  friend class Declarer;
  int index_ = -1;
};

struct ParamOptions {
  Split split = Split::none;
  int64_t block = 1;
  std::vector<Part> parts{};
  int64_t shard_block = 0;
};

// A cheap value: where in the component's tree we are, and in which unit.
class Declarer {
 public:
  explicit Declarer(Declarations& out) : out_(&out) {}

  // Starts the next unit; parameters declared through the returned value belong to it. Units run in order of
  // declaration.
  Declarer unit(UnitDecl decl) const;
  Declarer child(std::string_view name) const;             // a nested name
  Declarer child(std::string_view name, int64_t i) const;  // "blocks.3"
  Param param(std::string_view name, std::vector<int64_t> shape, Init init, ParamOptions options = {}) const;
  Param adopt(std::string_view name, Tensor tensor) const;  // a tensor of an existing module; keeps its values as init
  State state(std::string_view name, std::vector<int64_t> shape, Reduce reduce, Init init = Init::zeros()) const;
  void use(Param param) const;  // this unit also reads a parameter of another unit (tied weights)
  Site site(std::string_view name) const;
  // The unit has attention of that many heads: more ranks cannot share it by heads (Ulysses).
  void attends(const AttentionHeads& heads) const;

 private:
  std::string full_name(std::string_view name) const;

  Declarations* out_;
  int unit_ = -1;
  std::string prefix_;
};

}  // namespace loom
