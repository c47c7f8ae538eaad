// Sizes first, then the texts themselves, each straight to every other rank.
#include "core/comm/texts.h"

#include <ATen/ATen.h>

#include <cstring>

namespace loom {
namespace {

Tensor bytes_of(int64_t size) { return at::empty({size}, at::kByte); }

Tensor as_bytes(const std::string& text) {
  const Tensor out = bytes_of(static_cast<int64_t>(text.size()));
  if (!text.empty()) std::memcpy(out.mutable_data_ptr(), text.data(), text.size());
  return out;
}

void put_texts(const std::vector<Message>& received, std::vector<std::string>& out) {
  for (const Message& message : received) {
    out[static_cast<size_t>(message.peer)].assign(static_cast<const char*>(message.tensor.const_data_ptr()),
                                                  message.tensor.nbytes());
  }
}

}  // namespace

std::vector<std::string> exchange_texts(Communicator& comm, std::string_view what, const std::string& text) {
  const size_t self = static_cast<size_t>(comm.rank());
  std::vector<std::string> out(static_cast<size_t>(comm.world()));
  out[self] = text;
  if (comm.world() == 1) return out;
  const Tensor mine = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  const Tensor sizes = at::empty({comm.world()}, at::kLong);
  comm.all_gather(what, world_group(comm.world()), mine, sizes).wait();
  const Tensor sent = as_bytes(text);
  std::vector<Message> sends, receives;
  for (int rank = 0; rank < comm.world(); ++rank) {
    if (rank == comm.rank()) continue;
    const int64_t size = sizes.const_data_ptr<int64_t>()[rank];
    if (!text.empty()) sends.push_back({rank, sent});
    if (size > 0) receives.push_back({rank, bytes_of(size)});
  }
  comm.exchange(what, sends, receives).wait();
  put_texts(receives, out);
  return out;
}

std::vector<std::string> gather_texts(Communicator& comm, std::string_view what, int root, const std::string& text) {
  const Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  if (comm.rank() != root) {
    comm.exchange(what, {{root, size}}, {}).wait();
    if (!text.empty()) comm.exchange(what, {{root, as_bytes(text)}}, {}).wait();
    return {};
  }
  std::vector<std::string> out(static_cast<size_t>(comm.world()));
  out[static_cast<size_t>(root)] = text;
  std::vector<Message> sizes, texts;
  for (int rank = 0; rank < comm.world(); ++rank) {
    if (rank != root) sizes.push_back({rank, at::empty({1}, at::kLong)});
  }
  comm.exchange(what, {}, sizes).wait();
  for (const Message& message : sizes) {
    const int64_t bytes = *message.tensor.const_data_ptr<int64_t>();
    if (bytes > 0) texts.push_back({message.peer, bytes_of(bytes)});
  }
  if (!texts.empty()) comm.exchange(what, {}, texts).wait();
  put_texts(texts, out);
  return out;
}

}  // namespace loom
