#pragma once
// What a plugin implements. A component is a list of units, declared in its constructor (core/nn/declare.h) and run one
// by one; between units the core owns everything. The out-of-line destructors are the key functions of these classes.
//
// Streams by convention: an encoder's first unit reads "media" [tokens, features] and its last one writes "features"
// [outputs, width()]. A connector reads "features" and writes "embeddings" [slots, width]. A backbone reads "tokens"
// (int64 [T]) and writes "hidden" [T, width()] in its first unit, into whose rows the bridge then puts embeddings; its
// last unit reads "hidden", "loss_rows" and, when there are targets, "targets" (int64 [n]), and writes "logprob" [n],
// or "logits" [n, vocab] without targets. When evaluating it may also write "correct" (float [n]): 1 where the target
// is the most likely token.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/nn/context.h"
#include "core/step/item_layout.h"
#include "core/step/media.h"

namespace loom {

class Component {
 public:
  virtual ~Component();
  // Runs one unit on this rank's rows. Called with zero rows only where tensor parallelism splits weights of the unit
  // (core/nn/tensor_parallel.h) and other ranks of the group have some.
  virtual void run(int unit, Streams& s, UnitContext& ctx) = 0;
  // Once per step, after its gradients and on every rank with equal numbers: new values of declared states from their
  // values and the step's contributions. Default: nothing changes.
  virtual void end_step(StateTable& states);
};

class Encoder : public Component {
 public:
  ~Encoder() override;
  virtual int64_t width() const = 0;        // columns of "features"
  virtual int64_t media_width() const = 0;  // columns that prepare() makes
  virtual ItemMeta measure(
      const MediaInfo& info) const = 0;                   // without touching pixels; UserError = the item is refused
  virtual ItemLayout layout(const ItemMeta& meta) const;  // default: one segment
  virtual Tensor prepare(const Media& media,
                         const Philox& random) const = 0;  // any thread: [tokens, media_width()] float
  // For people: prepared rows as what the model sees of them, uint8 [frames, height, width, channels]. Undefined
  // (default) when there is nothing to look at.
  virtual Tensor show(const Tensor& rows, const ItemMeta& meta) const;
};

// How the bridge joins embeddings with a stream of the backbone.
enum class BridgeMode {
  replace = 1,  // the slots' rows become the embeddings
  add,          // the embeddings are added to the slots' rows (deepstack)
  stream,       // the embeddings are the stream, one segment per sample (cross attention)
};

// Where the bridge puts a stream of embeddings: into rows of this stream, before this unit runs.
struct BridgeTarget {
  std::string stream = "hidden";
  int unit = 1;
  BridgeMode mode = BridgeMode::replace;
  std::string embeddings = "embeddings";  // the connector's output stream
};

class Connector : public Component {
 public:
  ~Connector() override;
  virtual int64_t merge() const;  // encoder rows per LLM slot; default 1
  // Where its outputs go, given the backbone's own target; default: there, and nowhere else. Streams that the connector
  // reads besides "features" are outputs of inner units of the encoder.
  virtual std::vector<BridgeTarget> targets(const BridgeTarget& usual) const;
};

class Backbone : public Component {
 public:
  ~Backbone() override;
  virtual int64_t width() const = 0;
  virtual int64_t vocab() const = 0;
  // Forward FLOPs of one sample of so many tokens, for balancing; default: in proportion to them.
  virtual double cost(int64_t tokens) const;
  virtual BridgeTarget bridge_target() const;
};

}  // namespace loom
