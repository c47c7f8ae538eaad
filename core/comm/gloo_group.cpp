// Processes over c10d's Gloo: its point-to-point messages are moved by a thread of their own, straight between the
// tensors of both sides; large ones between neighbours of one machine without sockets (neighbors.h). A message is found
// by a tag made of the pair's ticket, its name and its size, so ranks that disagree never exchange wrong bytes; they
// are told apart by their signs of life.
#include <unistd.h>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/base/error_words.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/comm/device_group.h"
#include "core/comm/neighbors.h"
#include "core/comm/process_world.h"
#include "core/comm/store_group.h"
#include "core/comm/vital_signs.h"
#include "core/observe/process.h"

namespace loom {
namespace {

using Group = c10d::ProcessGroupGloo;

constexpr auto kFarewell = std::chrono::milliseconds(500);
// From here on neighbours copy; below, Gloo's own round trip is as short.
constexpr int64_t kLarge = 32 << 10;
constexpr auto kNever = std::chrono::hours(24 * 365);  // waiting is ended by signs of life, not by Gloo

bool loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

// What the ranks of a run and their queues share.
struct Meeting {
  RankPlace place;
  std::unique_ptr<Store> store;
  std::unique_ptr<VitalSigns> signs;
  std::unique_ptr<Neighbors> neighbors;
  int queues = 0;
};

c10::intrusive_ptr<Group> connect(Meeting& meeting, const std::string& name) {
  auto options = Group::Options::create(std::chrono::duration_cast<std::chrono::milliseconds>(kNever));
  options->threads = 1;  // of collectives, which are not used
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    options->devices = {Group::createDeviceForInterface(interface)};
  } else if (loopback(meeting.place.address)) {
    options->devices = {Group::createDeviceForHostname(meeting.place.address)};
  } else {
    options->devices = {Group::createDefaultDevice()};
  }
  return c10::make_intrusive<Group>(c10d_store(*meeting.store, name), meeting.place.rank, meeting.place.world, options);
}

int tag_of(uint64_t ticket, std::string_view what, int64_t bytes) {
  const uint64_t mixed = hash_name(concat(ticket, " ", bytes, " ", what));
  return static_cast<int>(mixed & INT_MAX);
}

class ProcessCommunicator final : public Communicator {
 public:
  ProcessCommunicator(std::shared_ptr<Meeting> meeting, const std::string& name, double timeout)
      : Communicator(meeting->place.rank, meeting->place.world),
        meeting_(std::move(meeting)),
        queue_(meeting_->queues++),
        gloo_(connect(*meeting_, name)),
        timeout_(timeout),
        sent_(static_cast<size_t>(world())),
        expected_(static_cast<size_t>(world())) {}

  std::unique_ptr<Communicator> sibling(std::string_view name) override {
    const std::string unique = concat(name, "#", meeting_->queues);
    return std::make_unique<ProcessCommunicator>(meeting_, unique, timeout_);
  }
  void set_timeout(double seconds) override { timeout_ = seconds; }
  double timeout() const override { return timeout_; }
  void fail(const std::string& words) override { meeting_->signs->report(words); }

 protected:
  Pending do_exchange(std::string_view what, const std::vector<Message>& sends,
                      const std::vector<Message>& receives) override {
    const auto on_device = [](const std::vector<Message>& messages) {
      return !messages.empty() && !messages.front().tensor.is_cpu();
    };
    if (on_device(sends) || on_device(receives)) return device().exchange(what, sends, receives);
    std::vector<Posted> posted;
    posted.reserve(sends.size() + receives.size());
    for (const Message& message : receives) posted.push_back(post(what, message, false));
    for (const Message& message : sends) posted.push_back(post(what, message, true));
    return Pending([this, name = std::string(what), posted = std::move(posted)] {
      for (const Posted& one : posted) finish(name, one);
    });
  }

 private:
  struct Posted {
    int peer = 0;
    uint64_t ticket = 0;
    int64_t bytes = 0;
    bool sends = false;
    c10::intrusive_ptr<c10d::Work> work;
    Neighbors::Handle transfer;  // in place of work
  };

  Posted post(std::string_view what, const Message& message, bool sends) {
    LOOM_CHECK(message.tensor.is_cpu(), "'", what, "': tensors of CPU and device in one exchange");
    auto& tickets = sends ? sent_ : expected_;
    Posted out{message.peer,
               ++tickets[static_cast<size_t>(message.peer)],
               static_cast<int64_t>(message.tensor.nbytes()),
               sends,
               {},
               {}};
    std::vector<Tensor> tensors{message.tensor.detach()};
    const int tag = tag_of(out.ticket, what, out.bytes);
    if (sends) meeting_->signs->sent({queue_, out.peer, out.ticket, what, out.bytes});
    Neighbors& near = *meeting_->neighbors;
    if (out.bytes >= kLarge && near.reaches(out.peer)) {
      const Neighbors::Key key{queue_, out.peer, out.ticket, static_cast<uint64_t>(tag)};
      out.transfer = sends ? near.send(key, tensors[0]) : near.receive(key, tensors[0]);
      return out;
    }
    try {
      out.work = sends ? gloo_->send(tensors, out.peer, tag) : gloo_->recv(tensors, out.peer, tag);
    } catch (const std::exception& error) {
      meeting_->signs->fail(out.peer, what, "the connection is closed");
    }
    return out;
  }

  void finish(const std::string& what, const Posted& posted) {
    bool done = false;
    {
      Neighbors& near = *meeting_->neighbors;
      const auto abort = [&posted, &near] { posted.work ? posted.work->abort() : near.abort(posted.transfer); };
      const VitalSigns::Wait wait(*meeting_->signs,
                                  {{queue_, posted.peer, posted.ticket, what, posted.bytes}, timeout_, abort});
      try {
        done = posted.work ? posted.work->wait() : near.wait(posted.transfer);
      } catch (const std::exception&) {
        // Told below: Gloo's words name sockets.
      }
    }
    if (!done) meeting_->signs->fail(posted.peer, what, "the connection is closed");
  }

  DeviceGroup& device() {
    if (device_ == nullptr) device_ = make_device_group(*meeting_->store, concat("device/", queue_), meeting_->place);
    return *device_;
  }

  std::shared_ptr<Meeting> meeting_;
  int queue_;
  c10::intrusive_ptr<Group> gloo_;
  double timeout_;
  std::vector<uint64_t> sent_, expected_;  // messages so far, by peer
  std::unique_ptr<DeviceGroup> device_;
};

// Every rank leaves its host's name and reads those of all others.
std::vector<std::string> meet(Store& store, const RankPlace& place, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto key = [](int rank) { return concat("host/", rank); };
  const std::string mine = concat(host_name(), "\t", place.world);
  const std::string before = store.claim(key(place.rank), concat(mine, "\t", ::getpid()));
  LOOM_CHECK_USER(before == concat(mine, "\t", ::getpid()), "two processes say that they are rank ", place.rank,
                  " of the run at ", place.address, ":", place.port);
  std::vector<std::string> hosts(static_cast<size_t>(place.world)), missing;
  for (auto pause = std::chrono::milliseconds(2);; pause = std::min(2 * pause, std::chrono::milliseconds(200))) {
    missing.clear();
    for (int rank = 0; rank < place.world; ++rank) {
      std::string& host = hosts[static_cast<size_t>(rank)];
      if (!host.empty()) continue;
      const std::optional<std::string> found = store.find(key(rank));
      if (!found.has_value()) {
        missing.push_back(std::to_string(rank));
        continue;
      }
      const size_t tab = found->find('\t');
      host = found->substr(0, tab);
      const std::string world = found->substr(tab + 1, found->rfind('\t') - tab - 1);
      LOOM_CHECK_USER(world == std::to_string(place.world), "rank ", rank, " (", host, ") was started as one of ",
                      world, " ranks, rank ", place.rank, " as one of ", place.world);
    }
    if (missing.empty()) return hosts;
    if (Clock::now() > end) break;
    std::this_thread::sleep_for(pause);
  }
  const size_t shown = std::min<size_t>(missing.size(), 8);
  throw CommError(concat("rank ", place.rank, ": ", missing.size(), " of ", place.world, " ranks did not arrive at ",
                         place.address, ":", place.port, " within ", seconds,
                         " s: ", join({missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown)}, ", "),
                         shown < missing.size() ? ", ..." : ""));
}

}  // namespace

std::unique_ptr<Communicator> join_world(const RankPlace& place, const WorldOptions& options) {
  LOOM_CHECK(place.world > 1, "a world of ", place.world, " rank needs no meeting");
  static std::once_flag quiet;
  std::call_once(quiet, [] {
    // LibTorch's lines show stacks where a peer merely ended; what matters is told by us.
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    // The store's server writes to sockets whose peers may have left; the signal would end this rank, too.
    struct sigaction now {};
    if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
  });
  auto meeting = std::make_shared<Meeting>();
  meeting->place = place;
  meeting->store = open_store(place, options.arrival);
  try {
    const std::vector<std::string> hosts = meet(*meeting->store, place, options.arrival);
    meeting->neighbors = std::make_unique<Neighbors>(
        link_neighbors(*meeting->store, place, hosts, options.share_memory, options.arrival));
    VitalOptions vital{place.rank, hosts, !place.store_elsewhere, options.patience};
    meeting->signs = std::make_unique<VitalSigns>(std::move(vital), meeting->store->another_connection());
    return std::make_unique<ProcessCommunicator>(meeting, "main", options.timeout);
  } catch (const Error&) {
    // The others still ask the store who is there, and would miss it.
    if (place.rank == 0 && !place.store_elsewhere) std::this_thread::sleep_for(kFarewell);
    throw;
  } catch (const std::exception& error) {
    throw CommError(concat("rank ", place.rank, " cannot connect to the other ranks: ", error_words(error),
                           "; GLOO_SOCKET_IFNAME names the network interface to use"));
  }
}

}  // namespace loom
