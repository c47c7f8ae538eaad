#pragma once
// One rank of a world that is not there. Nothing is sent and nobody is waited for; counts() and traffic() say exactly
// what this rank would have sent. On tensors without memory that plans a step for any number of ranks on one machine;
// on tensors with memory it shows what one rank alone holds.
#include <memory>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"

namespace loom {

// What arrives from other ranks reads as zeros. So a sum of few numbers (statistics) is this rank's own, of a large
// all-reduce only the part that this rank adds up is not zero, and a broadcast text is empty unless this is the root.
class DryCommunicator final : public Communicator {
 public:
  DryCommunicator(int rank, int world);
  std::unique_ptr<Communicator> sibling(std::string_view name) override;
  void set_timeout(double seconds) override { timeout_ = seconds; }
  double timeout() const override { return timeout_; }

 protected:
  Pending do_exchange(std::string_view what, const std::vector<Message>& sends,
                      const std::vector<Message>& receives) override;

 private:
  double timeout_ = 0;
};

}  // namespace loom
