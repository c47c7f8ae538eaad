#pragma once
// Messages between processes of one machine: the sender says where a tensor lies, the receiver copies it out of the
// sender's memory, straight into its own tensor. One copy per message, where a socket needs two and the network's code
// between them. A thread of its own moves messages, whoever waits for them and in whatever order.
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"
#include "core/comm/neighbor_links.h"

namespace loom {

class Neighbors {
 public:
  explicit Neighbors(std::vector<NeighborLink> links);
  ~Neighbors();
  Neighbors(const Neighbors&) = delete;
  Neighbors& operator=(const Neighbors&) = delete;

  bool reaches(int peer) const;

  // Both sides of a message give the same queue, ticket and tag.
  struct Key {
    int queue = 0, peer = 0;
    uint64_t ticket = 0, tag = 0;
    auto operator<=>(const Key&) const = default;
  };
  class Transfer;
  using Handle = std::shared_ptr<Transfer>;
  // Contiguous CPU tensors, which stay as they are until wait() returned. From any thread.
  Handle send(const Key& key, const Tensor& tensor);
  Handle receive(const Key& key, const Tensor& tensor);
  // False: the connection is closed, or abort() was called before the message had moved.
  bool wait(const Handle& handle);
  void abort(const Handle& handle);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loom
