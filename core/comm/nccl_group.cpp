// Messages between GPUs over c10d's NCCL: all sends and receives of an exchange are one NCCL group, on a stream of
// NCCL's own that begins after the current stream's work.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "core/base/error.h"
#include "core/comm/device_group.h"
#include "core/comm/store_group.h"

namespace loom {
namespace {

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(c10::intrusive_ptr<c10d::Store> store, const RankPlace& place)
      : nccl_(c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), place.rank, place.world)) {}

  Pending exchange(std::string_view what, const std::vector<Message>& sends,
                   const std::vector<Message>& receives) override {
    if (sends.empty() && receives.empty()) return {};
    const c10::Device device = (sends.empty() ? receives : sends).front().tensor.device();
    std::vector<Tensor> held;
    nccl_->startCoalescing();
    for (const bool sending : {false, true}) {
      for (const Message& message : sending ? sends : receives) {
        LOOM_CHECK(message.tensor.device() == device, "'", what, "': tensors of several devices in one exchange");
        if (message.tensor.numel() == 0) continue;  // both sides know that there is nothing
        std::vector<Tensor> one{message.tensor};
        held.push_back(message.tensor);
        if (sending) {
          nccl_->send(one, message.peer, 0);
        } else {
          nccl_->recv(one, message.peer, 0);
        }
      }
    }
    if (held.empty()) return {};
    const c10::intrusive_ptr<c10d::Work> work = nccl_->endCoalescing();
    return Pending([work, held = std::move(held)] { work->wait(); });
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

DeviceGroup::~DeviceGroup() = default;

std::unique_ptr<DeviceGroup> make_device_group(Store& store, const std::string& name, const RankPlace& place) {
  return std::make_unique<NcclGroup>(c10d_store(store, name), place);
}

}  // namespace loom
