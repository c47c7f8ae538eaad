#pragma once
// The one spelling of a tensor. Header only: core/base itself links nothing but c10.
#include <ATen/core/Tensor.h>

namespace loom {
using at::Tensor;
}
