#pragma once
// Encoders, connectors and a backbone as one model on this rank: forward through the tapes, over the bridge, and back.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/bound_component.h"
#include "core/model/model_batch.h"
#include "core/model/step_observer.h"
#include "core/model/tape.h"
#include "core/step/world_layout.h"

namespace loom {

struct ModelParts {
  std::map<std::string, std::shared_ptr<BoundComponent>> encoders;    // by modality
  std::map<std::string, std::shared_ptr<BoundComponent>> connectors;  // by modality
  std::shared_ptr<BoundComponent> backbone;
};

// What one microbatch contributes; all are sums, to be divided by global counts by whoever reports them.
struct MicrobatchResult {
  double loss_sum = 0;  // -sum of log-probabilities of the targets
  int64_t supervised = 0;
  std::map<std::string, double> interior;  // named sums
  TapeCounters counters;
};

// Global counts that losses are divided by: of the step, over all ranks.
struct Denominators {
  double supervised_tokens = 1;
  double rows = 1;
  double samples = 1;
};

// Numbers that cross the bridge per LLM slot, before and after a connector.
struct ConnectorWidths {
  int64_t features = 0, embeddings = 0;
  bool whole = true;  // a unit of it mixes whole items
};
// Does the connector run where the backbone wants its embeddings? Only one that mixes no whole items can; left to
// itself it does where features are narrower, slot by slot, than what it makes of them.
bool runs_at_slots(const ConnectorWidths& widths, ConnectorSide side);

// How a batch's targets fare, without gradients: [n] each.
struct BatchScores {
  Tensor log_probs;
  Tensor correct;  // 1 where the target is the most likely token; undefined when the backbone does not say
};

class MultimodalModel {
 public:
  MultimodalModel(ModelParts parts, uint64_t seed);
  ~MultimodalModel();

  // Adds gradients of (sum of losses / denominators) into the gradient buffers. A pass of an encoder that serves
  // several microbatches is kept until the last of them was here; so a step's microbatches come in order, all of them.
  MicrobatchResult forward_backward(const ModelBatch& batch, int64_t step, const Denominators& denominators);
  // No gradients.
  BatchScores score(const ModelBatch& batch);
  Tensor log_probs(const ModelBatch& batch) { return score(batch).log_probs; }
  // No gradients: logits [loss_rows, vocab] of a pass that appends to `cache` (prefill and decode are one run).
  Tensor logits(const ModelBatch& batch, KvCache& cache);

  std::vector<BoundComponent*> components();  // encoders, connectors, backbone; a stable order
  std::vector<UnitBuffer*> buffers();         // of all components, in that order
  void init_weights(uint64_t seed);
  void zero_gradients();
  void finish_gradients();  // once per step, after its last microbatch
  void end_step();          // states take over what the step contributed
  void weights_written();   // after the optimizer or a load
  // Gathers all weights and keeps them until released: what follows reads them without communication, so one rank may
  // evaluate while the others wait. All ranks call both.
  void hold_weights();
  void release_weights();
  Communicator& comm() const;
  c10::Device device() const { return parts_.backbone->device(); }
  // Who is told what later steps do; they must outlive these or be removed.
  StepObservers& observers() { return observers_; }
  StepObserver* observer() { return observers_.empty() ? nullptr : &observers_; }  // null = nobody listens
  const SlabPool& slabs() const { return pool_; }
  Encoder& encoder(const std::string& modality);
  const Encoder& encoder(const std::string& modality) const;
  int64_t merge(const std::string& modality) const;
  Backbone& backbone();
  // Where embeddings of a modality go; the connector's word.
  const std::vector<BridgeTarget>& targets(const std::string& modality) const { return targets_.at(modality); }
  // The backbone's stream that consists of them, for BridgeMode::stream; "" when they take rows of the text.
  std::string bridge_stream(const std::string& modality) const;
  // Partition of the encoder's "features".
  std::string features_partition(const std::string& modality) const;
  ConnectorWidths connector_widths(const std::string& modality) const;
  // May its items be divided over ranks: does no unit of encoder or connector mix `whole`?
  bool divisible(const std::string& modality) const;
  const std::vector<std::string>& modalities() const { return modalities_; }
  const ModelParts& parts() const { return parts_; }

 private:
  struct Pass;  // one microbatch
  struct Branch;
  struct OpenPasses;
  Branch& encode(OpenPasses& open, const EncoderBatch& items, TapeContext context);
  void encode_backward(Branch& branch);
  void inject(Pass& pass, int unit, StreamMap& streams);
  void extract(Pass& pass, int unit, StreamMap& gradients);
  StreamMap run(Pass& pass, const ModelBatch& batch, TapeContext context);  // the backbone's last streams

  ModelParts parts_;
  uint64_t seed_;
  std::vector<std::string> modalities_;
  std::map<std::string, std::vector<BridgeTarget>> targets_;
  SlabPool pool_;
  StepObservers observers_;
  std::unique_ptr<OpenPasses> open_;  // of the step under way
};

}  // namespace loom
