#pragma once
// A fused piece against its composition: values and gradients of everything, in float64 and float, with and without
// sinks for the parameters' gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <utility>
#include <vector>

#include "core/nn/gradient_sink.h"
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/ops/pieces.h"
#include "tests/support/bind.h"

namespace loom::test {

class MemorySink : public GradientSink {
 public:
  MemorySink(Tensor memory, bool fresh) : sum(std::move(memory)), fresh_(fresh) {}
  GradientTarget open() override {
    ++opened;
    return {sum, std::exchange(fresh_, false)};
  }

  Tensor sum;
  int opened = 0;

 private:
  bool fresh_;
};

struct Piece {
  std::vector<Tensor> inputs;  // float64
  std::vector<bool> is_parameter;
  std::function<std::vector<Tensor>(const std::vector<Weight>& inputs)> call;
};

struct Evaluation {
  std::vector<Tensor> outputs, gradients;  // gradients by input; undefined where none was asked for
  std::vector<MemorySink> sinks;           // by input, when there were any
};

// All of them with the instruction set that is in use by itself, a few with the others.
inline const kernels::Level kUsualLevel = kernels::current_level();
inline std::vector<int64_t> row_counts() {
  return kernels::current_level() == kUsualLevel ? std::vector<int64_t>{0, 1, 7, 31, 1000}
                                                 : std::vector<int64_t>{1, 31};
}

enum class Sinks { none = 1, fresh, filled };

// Before a filled sink's first contribution.
inline double filling() { return 0.75; }

inline std::vector<bool> all_of(const Piece& piece) { return std::vector<bool>(piece.inputs.size(), true); }

// The gradient of the i-th output; its sums do not cancel.
inline Tensor seed_of(const Tensor& y, size_t i) {
  const Tensor index = at::arange(y.numel(), at::kDouble);
  return (at::sin(index * (1.3 + static_cast<double>(i))) + 0.5).reshape(y.sizes()).to(y.scalar_type());
}

// `sliced`: what is no parameter is a column slice of something wider.
inline Evaluation evaluate(const Piece& piece, at::ScalarType dtype, const std::vector<bool>& needs,
                           bool sliced = false, Sinks sinks = Sinks::none, std::vector<bool> used = {}) {
  Evaluation out;
  std::vector<Weight> leaves;
  for (size_t i = 0; i < piece.inputs.size(); ++i) {
    Tensor leaf = piece.inputs[i].to(dtype).clone();
    if (sliced && !piece.is_parameter[i]) {
      const Tensor wide = at::full({leaf.size(0), leaf.size(1) + 5}, 1e30, leaf.options());
      wide.narrow(1, 2, leaf.size(1)).copy_(leaf);
      leaf = wide.narrow(1, 2, leaf.size(1)).detach();
    }
    leaves.push_back({leaf.requires_grad_(needs[i])});
    out.sinks.emplace_back(at::full_like(leaf.detach(), sinks == Sinks::fresh ? std::nan("") : filling()),
                           sinks == Sinks::fresh);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (sinks != Sinks::none && piece.is_parameter[i]) leaves[i].sink = &out.sinks[i];
  }
  out.outputs = piece.call(leaves);
  std::vector<Tensor> roots, seeds, wanted;
  for (size_t i = 0; i < out.outputs.size(); ++i) {
    const Tensor& y = out.outputs[i];
    const Tensor seed = seed_of(y, i);
    if (!y.requires_grad() || (!used.empty() && !used[i])) continue;
    roots.push_back(y);
    seeds.push_back(seed);
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (needs[i]) wanted.push_back(leaves[i].value);
  }
  out.gradients.resize(leaves.size());
  if (roots.empty() || wanted.empty()) return out;
  const std::vector<Tensor> found = torch::autograd::grad(roots, wanted, seeds, std::nullopt, false, true);
  for (size_t i = 0, next = 0; i < leaves.size(); ++i) {
    if (needs[i]) out.gradients[i] = found[next++];
  }
  return out;
}

inline void expect_close(const Tensor& found, const Tensor& right, double tolerance, const char* what, size_t index) {
  ASSERT_EQ(found.defined(), right.defined()) << what << " " << index;
  if (!found.defined()) return;
  ASSERT_EQ(found.sizes(), right.sizes()) << what << " " << index;
  EXPECT_LE(relative_difference(found, right), tolerance) << what << " " << index;
}

inline void expect_same(const Evaluation& found, const Evaluation& right, double tolerance) {
  ASSERT_EQ(found.outputs.size(), right.outputs.size());
  for (size_t i = 0; i < right.outputs.size(); ++i)
    expect_close(found.outputs[i], right.outputs[i], tolerance, "output", i);
  for (size_t i = 0; i < right.gradients.size(); ++i)
    expect_close(found.gradients[i], right.gradients[i], tolerance, "gradient of input", i);
}

inline Evaluation composition(const Piece& piece, const std::vector<bool>& needs, std::vector<bool> used = {}) {
  const ScopedPieces composed(Pieces::composed);
  return evaluate(piece, at::kDouble, needs, false, Sinks::none, std::move(used));
}

// Everything above for one piece at one shape.
inline void check_piece(Piece piece) {
  const ScopedPieces fused(Pieces::fused);
  for (Tensor& x : piece.inputs) x = x.to(at::kFloat).to(at::kDouble);  // the same values in both dtypes
  const std::vector<bool> all = all_of(piece);
  const Evaluation right = composition(piece, all);
  for (const bool sliced : {false, true}) {
    expect_same(evaluate(piece, at::kDouble, all, sliced), right, 1e-13);
    expect_same(evaluate(piece, at::kFloat, all, sliced), right, 2e-6);
  }
  for (size_t only = 0; only < all.size(); ++only) {
    SCOPED_TRACE(::testing::Message() << "only input " << only << " wants a gradient");
    std::vector<bool> needs(all.size(), false);
    needs[only] = true;
    expect_same(evaluate(piece, at::kDouble, needs), composition(piece, needs), 1e-13);
  }
  for (const Sinks sinks : {Sinks::fresh, Sinks::filled}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      SCOPED_TRACE(::testing::Message() << "sinks " << (sinks == Sinks::fresh ? "fresh" : "filled") << ", " << dtype);
      const Evaluation found = evaluate(piece, dtype, all, false, sinks);
      const double tolerance = dtype == at::kDouble ? 1e-13 : 2e-6;
      for (size_t i = 0; i < all.size(); ++i) {
        if (!piece.is_parameter[i]) {
          expect_close(found.gradients[i], right.gradients[i], tolerance, "gradient of input", i);
          continue;
        }
        EXPECT_FALSE(found.gradients[i].defined()) << i;
        EXPECT_EQ(found.sinks[i].opened, 1) << i;
        const Tensor expected = sinks == Sinks::filled ? right.gradients[i] + filling() : right.gradients[i];
        expect_close(found.sinks[i].sum, expected, tolerance, "sink of input", i);
      }
    }
  }
}

}  // namespace loom::test
