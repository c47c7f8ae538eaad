#pragma once
// y = x W' + b, with what stands before and after it in a block: the residual is where the product starts, and what a
// norm or an activation made of x is not kept for the backward but made again from x, in the pass that reads x anyway.
#include "core/base/tensor.h"
#include "core/nn/gradient_sink.h"

namespace loom {

enum class Gelu { exact = 1, tanh };

// x [T, in], weight [out, in], bias [out] or undefined, residual [T, out] or undefined -> [T, out].
Tensor linear(const Tensor& x_TI, const Weight& weight_OI, const Weight& bias_O = {}, const Tensor& residual_TO = {});

// linear(silu(gate) * up, ...) of x = [gate | up], each [T, in].
Tensor swiglu_linear(const Tensor& x_T2I, const Weight& weight_OI, const Weight& bias_O = {},
                     const Tensor& residual_TO = {});

// linear(gelu(x), ...).
Tensor gelu_linear(const Tensor& x_TI, Gelu gelu, const Weight& weight_OI, const Weight& bias_O = {},
                   const Tensor& residual_TO = {});

}  // namespace loom
