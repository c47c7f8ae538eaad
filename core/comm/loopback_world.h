#pragma once
// The state that the ranks of a loopback share: mailboxes and what everybody is doing, under one mutex. A world of
// threads knows all of it, so a wait that cannot end (two ranks that wait for each other, a peer that has finished) is
// an error at once, and a wait that lasts too long is explained by what the others do. Payloads are plain bytes; no
// tensor passes from one thread to another.
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"

namespace loom {

struct Parcel {
  std::string what;
  at::ScalarType type = at::kByte;
  int64_t numel = 0;
  std::unique_ptr<char[]> bytes;
};

class LoopbackWorld {
 public:
  explicit LoopbackWorld(int size);

  int size() const { return static_cast<int>(ranks_.size()); }
  // The world that the ranks' siblings of this name share; the same one for the n-th call of every rank.
  std::shared_ptr<LoopbackWorld> sibling(int rank, const std::string& name);
  // Puts a copy into the mailbox. CommError when somebody has failed.
  void send(int source, int destination, std::string_view what, const Tensor& tensor);
  // Claims the next message from `source`, whether it is there or not.
  uint64_t expect(int source, int destination);
  // Blocks until that message is there and copies it into `tensor`.
  void receive(int source, int destination, uint64_t ticket, const std::string& what, const Tensor& tensor,
               double timeout);

  void finish(int rank);
  // Wakes everybody with these words; only the first failure counts.
  void fail(int rank, const std::string& words);
  int failed_rank();  // -1 = none
  // InternalError when a message lies in a mailbox that nobody will open.
  void check_empty();

 private:
  enum class Doing { running = 1, waiting, finished };
  struct Rank {
    Doing doing = Doing::running;
    int peer = 0;  // the following only while waiting
    uint64_t ticket = 0;
    std::string what;
    std::condition_variable changed;
  };
  struct Mailbox {
    uint64_t sent = 0, expected = 0;
    std::map<uint64_t, Parcel> parcels;
  };

  struct Sibling {
    std::shared_ptr<LoopbackWorld> world;
    std::vector<bool> taken;  // by rank
  };

  // All with the mutex held.
  Mailbox& box(int source, int destination);
  bool stuck(int rank);  // waits, and what it waits for is not there
  bool in_circle(int rank);
  std::string describe(int rank, const std::string& since);
  void throw_if_failed() const;
  void mark_failed(int rank, const std::string& words);
  [[noreturn]] void fail_and_throw(int rank, const std::string& words);
  Parcel take(int source, int destination, uint64_t ticket, const std::string& what, double timeout);

  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::vector<Mailbox> boxes_;
  std::vector<std::pair<std::string, Sibling>> siblings_;
  int failed_ = -1;
  std::string words_;
};

}  // namespace loom
