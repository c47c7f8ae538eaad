#include "core/base/upload.h"

namespace loom {

// Pinned memory comes from LibTorch's cache of it, which gives a block out again only when its copy is done.
Tensor upload(const Tensor& host, c10::Device device) {
  if (host.device() == device) return host;
  if (!device.is_cuda() || !host.is_cpu()) return host.to(device);
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace loom
