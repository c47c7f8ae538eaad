// Sizes first, then the texts themselves, each straight to every other rank.
#include "core/comm/texts.h"

#include <ATen/ATen.h>

#include <cstring>

namespace loom {
namespace {

Tensor bytes_of(int64_t size) { return at::empty({size}, at::kByte); }

}  // namespace

std::vector<std::string> exchange_texts(Communicator& comm, std::string_view what, const std::string& text) {
  const size_t self = static_cast<size_t>(comm.rank());
  std::vector<std::string> out(static_cast<size_t>(comm.world()));
  out[self] = text;
  if (comm.world() == 1) return out;
  const Tensor mine = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  const Tensor sizes = at::empty({comm.world()}, at::kLong);
  comm.all_gather(what, world_group(comm.world()), mine, sizes).wait();
  const Tensor sent = bytes_of(static_cast<int64_t>(text.size()));
  if (!text.empty()) std::memcpy(sent.mutable_data_ptr(), text.data(), text.size());
  std::vector<Message> sends, receives;
  for (int rank = 0; rank < comm.world(); ++rank) {
    if (rank == comm.rank()) continue;
    const int64_t size = sizes.const_data_ptr<int64_t>()[rank];
    if (!text.empty()) sends.push_back({rank, sent});
    if (size > 0) receives.push_back({rank, bytes_of(size)});
  }
  comm.exchange(what, sends, receives).wait();
  for (const Message& message : receives) {
    out[static_cast<size_t>(message.peer)].assign(static_cast<const char*>(message.tensor.const_data_ptr()),
                                                  message.tensor.nbytes());
  }
  return out;
}

}  // namespace loom
