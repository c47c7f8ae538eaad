#pragma once
// Who is alive, and why a run of many processes ended. Every rank leaves a sign of life in the store at short intervals
// and looks for that of the next rank; a rank that loses a peer writes the cause once, for all; everybody who waits for
// anybody is then woken and fails with the same words. So a peer that was killed, stopped or cut off becomes an error
// that names it on every rank that is left, also on those that were not waiting for it.
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/comm/store.h"

namespace loom {

struct VitalOptions {
  int rank = 0;
  std::vector<std::string> hosts;  // by rank
  bool store_at_rank0 = true;      // false: the launcher holds it
  double patience = 30;            // seconds without a sign of life after which a peer is lost
};

class VitalSigns {
 public:
  VitalSigns(VitalOptions options, std::unique_ptr<Store> store);
  // After a failure, the rank that holds the store waits a little until the others have read the cause.
  ~VitalSigns();
  VitalSigns(const VitalSigns&) = delete;
  VitalSigns& operator=(const VitalSigns&) = delete;

  // A message of a queue (a communicator or a sibling of it), the ticket-th from one rank to another.
  struct Parcel {
    int queue = 0, peer = 0;
    uint64_t ticket = 0;
    std::string_view what;
    int64_t bytes = 0;
  };
  struct Waiting {
    Parcel parcel;
    double timeout = 0;           // seconds; 0 = for ever
    std::function<void()> abort;  // wakes the waiting thread, from another one; may be called several times
  };
  // While it lives, the calling thread waits. CommError at once when the run has already failed.
  class Wait {
   public:
    Wait(VitalSigns& signs, Waiting waiting);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    VitalSigns& signs_;
    size_t id_;
  };

  // This rank sent it; a peer that waits for something else under the same ticket disagrees with us, and both are told.
  void sent(const Parcel& parcel);
  // A wait was aborted, or its connection broke (`reason`: "connection closed"): agrees with the others on one cause
  // and throws it as a CommError.
  [[noreturn]] void fail(int peer, std::string_view what, const std::string& reason);
  // This rank cannot go on, for a reason of its own; the others end with these words.
  void report(const std::string& words);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace loom
