// One thread per rank around a LoopbackWorld. What a rank throws is kept as the object it threw, so that whoever called
// run_loopback catches the class that a single rank would have thrown.
#include "core/comm/loopback.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/comm/loopback_world.h"

namespace loom {
namespace {

constexpr uint64_t kLongestDelay = 300;  // microseconds

class LoopbackCommunicator final : public Communicator {
 public:
  LoopbackCommunicator(LoopbackWorld& world, int rank, const LoopbackOptions& options)
      : Communicator(rank, world.size()), shared_(world), options_(options), timeout_(options.timeout) {
    if (options.delays > 0) {
      delays_.emplace(
          RandomKey{.seed = options.delays, .purpose = Purpose::noise, .site = static_cast<uint64_t>(rank)});
    }
  }
  LoopbackCommunicator(std::shared_ptr<LoopbackWorld> world, int rank, const LoopbackOptions& options)
      : LoopbackCommunicator(*world, rank, options) {
    own_ = std::move(world);
  }
  ~LoopbackCommunicator() override {
    if (own_ != nullptr) own_->finish(rank());
  }

  std::unique_ptr<Communicator> sibling(std::string_view name) override {
    return std::make_unique<LoopbackCommunicator>(shared_.sibling(rank(), std::string(name)), rank(), options_);
  }

  void set_timeout(double seconds) override { timeout_ = seconds; }
  double timeout() const override { return timeout_; }

 protected:
  Pending do_exchange(std::string_view what, const std::vector<Message>& sends,
                      const std::vector<Message>& receives) override {
    struct Receipt {
      Message message;
      uint64_t ticket;
    };
    std::vector<Receipt> receipts;
    for (const Message& message : receives) {
      check_cpu(what, message);
      receipts.push_back({message, shared_.expect(message.peer, rank())});
    }
    for (const Message& message : sends) {
      check_cpu(what, message);
      delay();
      shared_.send(rank(), message.peer, what, message.tensor);
    }
    if (receipts.empty()) return {};
    return Pending([this, name = std::string(what), receipts = std::move(receipts)] {
      for (const Receipt& receipt : receipts) {
        shared_.receive(receipt.message.peer, rank(), receipt.ticket, name, receipt.message.tensor, timeout_);
      }
    });
  }

 private:
  void check_cpu(std::string_view what, const Message& message) const {
    LOOM_CHECK(message.tensor.is_cpu(), "'", what, "': loopback ranks exchange CPU tensors, not ",
               message.tensor.device().str());
  }

  void delay() {
    if (!delays_) return;
    const uint64_t draw = delays_->below(2 * kLongestDelay, drawn_++);
    if (draw < kLongestDelay) std::this_thread::sleep_for(std::chrono::microseconds(draw));
  }

  std::shared_ptr<LoopbackWorld> own_;  // of a sibling
  LoopbackWorld& shared_;
  const LoopbackOptions options_;
  double timeout_;
  std::optional<Philox> delays_;
  uint64_t drawn_ = 0;
};

// What became of a rank; written by its thread, read after the join.
struct Outcome {
  std::exception_ptr error;
  bool lost_peer = false;  // a CommError: often the consequence of another rank's failure
};

void run_rank(LoopbackWorld& world, int rank, const LoopbackOptions& options,
              const std::function<void(Communicator&)>& body, Outcome& outcome) {
  std::string words;
  try {
    at::set_num_threads(options.threads);
    LoopbackCommunicator comm(world, rank, options);
    body(comm);
    world.finish(rank);
    return;
  } catch (const CommError& error) {
    outcome.lost_peer = true;
    words = error.what();
    outcome.error = std::current_exception();
  } catch (const c10::Error& error) {
    words = error.what_without_backtrace();
    outcome.error = std::current_exception();
  } catch (const std::exception& error) {
    words = error.what();
    outcome.error = std::current_exception();
  } catch (...) {
    words = "an exception of an unknown class";
    outcome.error = std::current_exception();
  }
  world.fail(rank, words);
}

// The first rank that failed, unless it merely missed a peer that failed with something better.
void rethrow(const std::vector<Outcome>& outcomes, int first) {
  const Outcome* best = nullptr;
  if (first >= 0 && outcomes[static_cast<size_t>(first)].error) best = &outcomes[static_cast<size_t>(first)];
  for (const Outcome& outcome : outcomes) {
    if (outcome.error && (best == nullptr || (best->lost_peer && !outcome.lost_peer))) best = &outcome;
  }
  if (best != nullptr) std::rethrow_exception(best->error);
}

}  // namespace

void run_loopback(int size, const LoopbackOptions& options, const std::function<void(Communicator&)>& body) {
  LOOM_CHECK(size >= 1 && options.threads >= 1, "a loopback of ", size, " ranks with ", options.threads,
             " threads each");
  LoopbackWorld world(size);
  std::vector<Outcome> outcomes(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  std::string no_thread;
  const int threads_before = at::get_num_threads();
  for (int rank = 0; rank < size && no_thread.empty(); ++rank) {
    try {
      threads.emplace_back([&, rank] { run_rank(world, rank, options, body, outcomes[static_cast<size_t>(rank)]); });
    } catch (const std::system_error& error) {
      no_thread = concat("its thread could not be started: ", error.what());
      world.fail(rank, no_thread);
    }
  }
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(threads_before);  // also what threads made from now on begin with
  if (!no_thread.empty()) throw EnvironmentError(concat("rank ", threads.size(), ": ", no_thread));
  rethrow(outcomes, world.failed_rank());
  if (world.failed_rank() < 0) world.check_empty();
}

}  // namespace loom
