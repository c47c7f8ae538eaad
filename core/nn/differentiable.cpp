// See the header. The backward function travels in an IValue capsule, so it lives exactly as long as the graph node.
#include "core/nn/differentiable.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/base/error.h"

namespace loom {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Holder : torch::CustomClassHolder {
  explicit Holder(BackwardFunction f) : function(std::move(f)) {}
  BackwardFunction function;
};

struct Operation : torch::autograd::Function<Operation> {
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs, const std::vector<Tensor>* outputs,
                               std::vector<Tensor>* saved, BackwardFunction* backward) {
    // A single output always has a gradient; of several, one may have none, and zeros would cost a pass over memory.
    ctx->set_materialize_grads(outputs->size() == 1);
    ctx->saved_data["inputs"] = static_cast<int64_t>(inputs.size());
    ctx->save_for_backward(std::move(*saved));
    ctx->saved_data["backward"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(*backward)));
    return *outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    BackwardCall call;
    call.grad = grads[0];
    call.grads = std::move(grads);
    call.saved = ctx->get_saved_variables();
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = ctx->saved_data["backward"].toCapsule();
    const auto& function = static_cast<const Holder&>(*capsule).function;
    const auto inputs = static_cast<size_t>(ctx->saved_data["inputs"].toInt());
    for (size_t i = 0; i < inputs; ++i) call.needs.push_back(ctx->needs_input_grad(i));
    variable_list out = function(call);
    LOOM_CHECK(out.size() == inputs, out.size(), " gradients for ", inputs, " inputs");
    out.resize(inputs + 3);  // outputs, saved and backward are no variables
    return out;
  }
};

}  // namespace

bool wants_gradient(const std::vector<Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

Tensor differentiable(const Tensor& output, const std::vector<Tensor>& inputs, std::vector<Tensor> saved,
                      BackwardFunction backward) {
  if (!wants_gradient(inputs)) return output;
  const std::vector<Tensor> outputs{output};
  return Operation::apply(at::TensorList(inputs), &outputs, &saved, &backward)[0];
}

std::vector<Tensor> differentiable(std::vector<Tensor> outputs, const std::vector<Tensor>& inputs,
                                   std::vector<Tensor> saved, BackwardFunction backward) {
  if (!wants_gradient(inputs)) return outputs;
  return Operation::apply(at::TensorList(inputs), &outputs, &saved, &backward);
}

}  // namespace loom
