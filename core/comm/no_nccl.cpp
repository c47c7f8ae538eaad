// Without NCCL.
#include "core/base/error.h"
#include "core/comm/device_group.h"

namespace loom {

DeviceGroup::~DeviceGroup() = default;

std::unique_ptr<DeviceGroup> make_device_group(Store&, const std::string&, const RankPlace&) {
  throw EnvironmentError("this build has no NCCL: several ranks compute on the CPU only; set train.device to cpu");
}

}  // namespace loom
