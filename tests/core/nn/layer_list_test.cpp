// Every layer of core/nn against finite differences in float64. The list of layers is read from the headers: one that
// has no entry in the table below fails.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <sstream>

#include "core/nn/embedding.h"
#include "core/nn/linear.h"
#include "core/nn/logprob_head.h"
#include "core/nn/mlp.h"
#include "core/nn/norm.h"
#include "core/nn/rotary.h"
#include "core/nn/self_attention.h"
#include "tests/core/nn/levels.h"
#include "tests/paths.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

using Call = std::function<Tensor(const std::vector<Tensor>& inputs, UnitContext& ctx)>;
using Setup = std::function<Call(const Declarer& d)>;

Tensor real(std::vector<int64_t> shape) { return at::randn(shape, at::kDouble).requires_grad_(); }

// Gradients of sum(output * fixed weights) by autograd and by central differences, for all floating inputs and all
// parameters.
void check_gradients(const Setup& setup, std::vector<Tensor> inputs, const Partitions& partitions) {
  BoundLayer layer;
  const Call call = setup(layer.declarer());
  layer.bind(at::kDouble);
  layer.partitions() = partitions;
  std::vector<Tensor> leaves;
  for (const Tensor& x : inputs) {
    if (x.is_floating_point()) leaves.push_back(x);
  }
  leaves.insert(leaves.end(), layer.params().begin(), layer.params().end());
  UnitContext first = layer.context();
  const Tensor out = call(inputs, first);
  const Tensor weights = at::randn(out.sizes(), at::kDouble);
  const auto value = [&] {
    const c10::AutoGradMode no_grad(false);
    UnitContext ctx = layer.context();
    return (call(inputs, ctx) * weights).sum().item<double>();
  };
  const auto found = torch::autograd::grad({(out * weights).sum()}, leaves);
  double all = 0;
  for (const Tensor& g : found) all += g.pow(2).sum().item<double>();
  for (size_t i = 0; i < leaves.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "tensor " << i << " of shape " << leaves[i].sizes());
    ASSERT_TRUE(found[i].defined());
    const Tensor expected = at::zeros_like(leaves[i]);
    double* x = leaves[i].mutable_data_ptr<double>();
    constexpr double kStep = 1e-5;
    for (int64_t j = 0; j < leaves[i].numel(); ++j) {
      const double kept = x[j];
      x[j] = kept + kStep;
      const double above = value();
      x[j] = kept - kStep;
      const double below = value();
      x[j] = kept;
      expected.mutable_data_ptr<double>()[j] = (above - below) / (2 * kStep);
    }
    const double size = std::max(expected.norm().item<double>(), 1e-3 * std::sqrt(all));
    EXPECT_LE((found[i] - expected).norm().item<double>() / size, 1e-6);
  }
}

void linear() {
  for (const bool bias : {true, false}) {
    check_gradients(
        [&](const Declarer& d) {
          return [layer = Linear(d, 5, 3, {.bias = bias})](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx);
          };
        },
        {real({4, 5})}, {});
    check_gradients(
        [&](const Declarer& d) {
          return [layer = Linear(d, 5, 3, {.bias = bias})](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer.add(in[0], in[1], ctx);
          };
        },
        {real({4, 5}), real({4, 3})}, {});
  }
}

template <class Norm>
void norm() {
  for (const int64_t width : {1, 5, 16, 23}) {
    check_gradients(
        [&](const Declarer& d) {
          return [layer = Norm(d, width, 1e-2)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx);
          };
        },
        {real({3, 2, width})}, {});
    check_gradients(
        [&](const Declarer& d) {
          return [layer = Norm(d, width, 1e-2)](const std::vector<Tensor>& in, UnitContext& ctx) {
            const AddedNorm first = layer.add(in[0], Tensor(), ctx);
            const AddedNorm second = layer.add(first.sum, in[1] * first.normed, ctx);
            return second.sum + second.normed * 3.0;
          };
        },
        {real({4, width}), real({4, width})}, {});
  }
}

void rotary() {
  Segments rows;
  rows.append(3, {1, 0, 0}, {7, 300, 2});
  rows.append(0, {2, 0, 0});
  rows.append(2, {3, 0, 0});
  for (const int64_t dim : {2, 6, 20}) {
    check_gradients(
        [&](const Declarer&) {
          return [layer = Rotary(dim, 100.0)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx);
          };
        },
        {real({5, 3 * dim})}, {{"", rows}});
  }
}

void swiglu() {
  for (const bool bias : {true, false}) {
    check_gradients(
        [&](const Declarer& d) {
          return [layer = SwiGlu(d, 4, 11, bias)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx);
          };
        },
        {real({3, 4})}, {});
    check_gradients(
        [&](const Declarer& d) {
          return [layer = SwiGlu(d, 4, 11, bias)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer.add(in[0], in[0] * in[0], ctx);
          };
        },
        {real({3, 4})}, {});
  }
}

void gelu_mlp() {
  for (const Gelu gelu : {Gelu::exact, Gelu::tanh}) {
    check_gradients(
        [&](const Declarer& d) {
          GeluMlpOptions options;
          options.in = 4;
          options.hidden = 7;
          options.out = 3;
          options.gelu = gelu;
          return [layer = GeluMlp(d, options)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx) + layer.add(in[0] * 2.0, in[1], ctx);
          };
        },
        {real({3, 4}), real({3, 3})}, {});
  }
}

void embedding() {
  check_gradients(
      [](const Declarer& d) {
        return
            [layer = Embedding(d, 6, 4)](const std::vector<Tensor>& in, UnitContext& ctx) { return layer(in[0], ctx); };
      },
      {at::tensor({3, 0, 3, 5}, at::kLong)}, {});
}

void position_embedding() {
  Segments flat, grid;
  flat.append(3, {1, 0, 0}, {5, 0, 5});
  grid.position_axes = 2;
  grid.append(3, {1, 0, 0}, {0, 2, 1, 0, 1, 2});
  for (const Segments& rows : {flat, grid}) {
    check_gradients(
        [](const Declarer& d) {
          return [layer = PositionEmbedding(d, {2, 3}, 4)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx);
          };
        },
        {real({3, 4})}, {{"", rows}});
  }
}

void self_attention() {
  SelfAttentionOptions plain, decoder, windowed;
  plain.width = 6;
  plain.heads = 3;
  decoder.width = 5;
  decoder.heads = 4;
  decoder.kv_heads = 2;
  decoder.head_dim = 4;
  decoder.causal = decoder.qk_norm = true;
  decoder.qkv_bias = decoder.out_bias = false;
  decoder.rotary_theta = 50;
  decoder.norm_eps = 1e-2;
  windowed = decoder;
  windowed.window = 2;
  windowed.qkv_bias = true;
  for (const SelfAttentionOptions& options : {plain, decoder, windowed}) {
    check_gradients(
        [&](const Declarer& d) {
          return [layer = SelfAttention(d, options)](const std::vector<Tensor>& in, UnitContext& ctx) {
            return layer(in[0], ctx);
          };
        },
        {real({8, options.width})}, {{"", segments_of({5, 0, 1, 2})}});
  }
}

void logprob_head() {
  const Tensor targets = at::tensor({2, 0, 6, 2, 1}, at::kLong);
  check_gradients(
      [](const Declarer& d) {
        return [layer = LogProbHead(d, 7, 4)](const std::vector<Tensor>& in, UnitContext& ctx) {
          return layer.log_probs(in[0], in[1], ctx);
        };
      },
      {real({5, 4}), targets}, {});
  check_gradients(
      [](const Declarer& d) {
        const Embedding table(d.child("table"), 19, 4);
        return [table, layer = LogProbHead(d, table.weight())](const std::vector<Tensor>& in, UnitContext& ctx) {
          return layer.log_probs(table(in[0], ctx), in[0], ctx) + layer.logits(table(in[0], ctx), ctx).select(1, 3);
        };
      },
      {targets}, {});
}

const std::map<std::string, void (*)()>& table() {
  static const std::map<std::string, void (*)()> entries{{"Linear", linear},
                                                         {"RmsNorm", norm<RmsNorm>},
                                                         {"LayerNorm", norm<LayerNorm>},
                                                         {"Rotary", rotary},
                                                         {"SwiGlu", swiglu},
                                                         {"GeluMlp", gelu_mlp},
                                                         {"Embedding", embedding},
                                                         {"PositionEmbedding", position_embedding},
                                                         {"SelfAttention", self_attention},
                                                         {"LogProbHead", logprob_head}};
  return entries;
}

// Classes in a header with a member function that computes: it takes a context and is const.
std::vector<std::string> layers_in(const std::string& text) {
  std::vector<std::string> names;
  const std::regex declaration("\\n(?:class|struct) (\\w+)[^;{]*\\{");
  const std::regex computes("UnitContext& ctx\\) const");
  for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it) {
    const size_t begin = static_cast<size_t>(it->position());
    if (std::regex_search(text.substr(begin, text.find("\n};", begin) - begin), computes)) names.push_back((*it)[1]);
  }
  return names;
}

TEST(LayerList, EveryLayerHasAnEntry) {
  std::vector<std::string> found;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(kSourceDir) / "core/nn")) {
    if (file.path().extension() != ".h") continue;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    for (const std::string& name : layers_in(text.str())) {
      found.push_back(name);
      EXPECT_TRUE(table().count(name) > 0)
          << name << " in " << file.path() << " has no entry in the table of " << __FILE__;
    }
  }
  EXPECT_EQ(found.size(), table().size());
}

TEST(LayerList, AMissingLayerIsNoticed) {
  EXPECT_EQ(
      layers_in(
          "\nclass New {\n  Tensor operator()(const Tensor& x, UnitContext& ctx) const;\n};\nclass Other {\n};\n"),
      std::vector<std::string>{"New"});
}

TEST(LayerList, GradientsAreThoseOfFiniteDifferences) {
  at_every_level([] {
    for (const auto& [name, check] : table()) {
      SCOPED_TRACE(name);
      at::manual_seed(11);
      check();
    }
  });
}

}  // namespace
}  // namespace loom::test
