#pragma once
// Messages between tensors on GPUs. nccl_group.cpp implements it; no_nccl.cpp stands in for it where LibTorch has no
// NCCL.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/rank_place.h"

namespace loom {

class Store;

class DeviceGroup {
 public:
  virtual ~DeviceGroup();
  // As Communicator::do_exchange. On GPUs to wait means that later work of the current stream comes after.
  virtual Pending exchange(std::string_view what, const std::vector<Message>& sends,
                           const std::vector<Message>& receives) = 0;
};

// On all ranks together. EnvironmentError where there is no NCCL.
std::unique_ptr<DeviceGroup> make_device_group(Store& store, const std::string& name, const RankPlace& place);

}  // namespace loom
