#pragma once
// Which model a case trains: encoders by modality with their connectors, a backbone with its traits, and how it is
// bound to ranks. The same spec makes the model of one rank and of many.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/multimodal_model.h"
#include "core/step/world_layout.h"
#include "tests/loopback/zoo/backbone.h"
#include "tests/loopback/zoo/connectors.h"

namespace loom::test {

enum class EncoderKind { tiny = 1, conv, windows, class_row, mean, deep, module };

struct EncoderChoice {
  std::string modality = "image";
  EncoderKind kind = EncoderKind::tiny;
  int64_t merge = 1;
  Joins joins = Joins::text_rows;
  std::function<std::shared_ptr<Encoder>(const Declarer&)> custom{};  // in place of `kind`
};

struct ModelSpec {
  std::string name;
  std::vector<EncoderChoice> encoders{};
  BackboneOptions backbone{};
  bool captioner = false;  // the backbone of tests/support/tiny_model.h
  bool balance = false;
  std::vector<std::string> frozen{};  // full names or prefixes
};

struct BindChoice {
  at::ScalarType dtype = at::kDouble;
  bool recompute = false;
  bool always_slab = false;
  bool keep_weights = false, keep_gradients = false;
  bool tied = true;
  double dropout = 0;
  uint64_t nudge = 0;  // every weight is moved by at most one unit in its last place, as this seed says; 0 = none
};

// The zoo that parity cases choose from, in a fixed order; each has a trait that real models bring.
const std::vector<ModelSpec>& zoo_models();
const ModelSpec& zoo_model(const std::string& name);

// Every rank calls this with its communicator; null = one rank. Weights are initialised.
std::unique_ptr<MultimodalModel> make_model(const ModelSpec& spec, const BindChoice& bind, const WorldLayout& layout,
                                            Communicator* comm);

}  // namespace loom::test
