#pragma once
// Host values for a device, without waiting for it. LibTorch's own `to` waits for all that the GPU still has to do when
// the host memory is ordinary: once per layer, that would leave it idle.
#include <c10/core/Device.h>

#include "core/base/tensor.h"

namespace loom {

// `host` on the device; itself when it is there. To a GPU it goes through pinned memory, in order with the GPU's work.
Tensor upload(const Tensor& host, c10::Device device);

}  // namespace loom
