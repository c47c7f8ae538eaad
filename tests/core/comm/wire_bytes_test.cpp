// What we count is what the network carries: every collective in a network namespace of its own, where nobody else
// uses the loopback interface, against the interface's own counter. Neighbours that copy from memory to memory send
// next to nothing through it.
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/comm/neighbor_links.h"
#include "tests/core/comm/gloo_threads.h"
#include "tests/core/comm/values.h"

namespace loom {
namespace {

// Of the calling thread and those that it starts; "" when it worked.
std::string enter_namespace() {
  if (::unshare(CLONE_NEWNET) != 0) return std::strerror(errno);
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  const std::string problem = up ? "" : std::strerror(errno);
  ::close(socket);
  return problem;
}

// Bytes that the interface has sent.
int64_t sent_by_interface() {
  std::ifstream lines("/proc/thread-self/net/dev");
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo") > colon) continue;
    std::istringstream numbers(line.substr(colon + 1));
    int64_t value = 0;
    for (int field = 0; field < 9; ++field) numbers >> value;
    return value;
  }
  return -1;
}

using Collective = std::function<void(Communicator&)>;

TEST(WireBytes, TheInterfaceCountsWhatWeCount) {
  constexpr int kWorld = 3;
  constexpr int64_t kValues = 600'000;
  const RankGroup everyone = world_group(kWorld);
  const std::vector<std::pair<CommKind, Collective>> kinds = {
      {CommKind::all_gather,
       [&](Communicator& c) {
         c.all_gather("all", everyone, at::ones({kValues}), at::empty({kWorld * kValues})).wait();
       }},
      {CommKind::reduce_scatter,
       [&](Communicator& c) {
         c.reduce_scatter_add("all", everyone, at::ones({kWorld * kValues}), at::zeros({kValues})).wait();
       }},
      {CommKind::all_reduce, [&](Communicator& c) { c.all_reduce("all", everyone, at::ones({kValues})); }},
      {CommKind::broadcast,
       [&](Communicator& c) { c.broadcast("all", everyone, 1, std::string(static_cast<size_t>(kValues), 'x')); }},
      {CommKind::exchange,
       [&](Communicator& c) {
         const int next = (c.rank() + 1) % kWorld, before = (c.rank() + kWorld - 1) % kWorld;
         c.exchange("all", {{next, at::ones({kValues})}}, {{before, at::empty({kValues})}}).wait();
       }},
  };
  // Carried over counted, by kind.
  const auto measure = [&](bool share_memory) {
    std::vector<std::atomic<int64_t>> counted(kinds.size());
    std::vector<int64_t> carried(kinds.size());
    WorldOptions options;
    options.share_memory = share_memory;
    const auto errors = test::run_gloo(kWorld, options, [&](Communicator& comm) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        comm.barrier("before", everyone);
        if (comm.rank() == 0) carried[k] -= sent_by_interface();
        comm.barrier("begin", everyone);
        comm.reset_counts();
        for (int round = 0; round < 4; ++round) kinds[k].second(comm);
        counted[k] += test::count_of(comm, kinds[k].first).bytes;
        comm.barrier("end", everyone);
        if (comm.rank() == 0) carried[k] += sent_by_interface();
      }
    });
    for (const std::exception_ptr& error : errors) EXPECT_EQ(test::words_of(error), "");
    std::vector<double> ratios;
    for (size_t k = 0; k < kinds.size(); ++k) {
      const double ours = static_cast<double>(counted[k]), theirs = static_cast<double>(carried[k]);
      std::printf("%s: counted %.0f bytes, carried %.0f, ratio %.4f\n", comm_kind_name(kinds[k].first), ours, theirs,
                  theirs / ours);
      EXPECT_GT(ours, 1e6);
      ratios.push_back(theirs / ours);
    }
    return ratios;
  };
  std::string problem;
  std::thread([&] {
    problem = enter_namespace();
    if (!problem.empty()) return;
    const std::vector<double> over_sockets = measure(false);
    for (size_t k = 0; k < kinds.size(); ++k) {
      EXPECT_LT(over_sockets[k], 1.03) << comm_kind_name(kinds[k].first);
      EXPECT_GT(over_sockets[k], 0.97) << comm_kind_name(kinds[k].first);
    }
    uint64_t number = 1, read = 0;
    if (!read_memory(::getpid(), reinterpret_cast<uint64_t>(&number), &read, sizeof(read))) return;
    const std::vector<double> between_neighbors = measure(true);
    for (size_t k = 0; k < kinds.size(); ++k) {
      EXPECT_LT(between_neighbors[k], 0.05) << comm_kind_name(kinds[k].first);
    }
  }).join();
  if (!problem.empty()) GTEST_SKIP() << "a network namespace needs privileges here: " << problem;
}

}  // namespace
}  // namespace loom
