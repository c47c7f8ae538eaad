// Attention of one packed sequence over two processes, each pinned to a core, against one process with half of the
// work: what dividing it costs, and how much of the exchange hides behind computing: 1 - (time that a rank stood
// waiting for messages) / (time of the same messages with nothing else to do). Causal, 4 heads of 64 over 2 KV
// heads, float, forward and backward; medians of alternating rounds. attention_ranks [ROUNDS] [TOKENS...]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/comm/process_world.h"
#include "core/nn/split_attention.h"
#include "core/step/placement.h"
#include "tests/core/nn/split_items.h"

namespace loom {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 64;

double now();

// Passes everything on and counts the seconds in which its rank waited.
class WaitClock final : public Communicator {
 public:
  explicit WaitClock(Communicator& inner) : Communicator(inner.rank(), inner.world()), inner_(inner) {}
  std::unique_ptr<Communicator> sibling(std::string_view name) override { return inner_.sibling(name); }
  void set_timeout(double seconds) override { inner_.set_timeout(seconds); }
  double timeout() const override { return inner_.timeout(); }

  struct Call {
    std::string what;
    std::vector<Message> sends, receives;
    double waited = 0;
  };
  std::vector<Call> calls;  // in their order

 protected:
  Pending do_exchange(std::string_view what, const std::vector<Message>& sends,
                      const std::vector<Message>& receives) override {
    const size_t call = calls.size();
    calls.push_back({std::string(what), sends, receives});
    auto pending = std::make_shared<Pending>(inner_.exchange(what, sends, receives));
    return Pending([this, call, pending] {
      const double start = now();
      pending->wait();
      calls[call].waited += now() - start;
    });
  }

 private:
  Communicator& inner_;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  LOOM_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                 ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0,
             "no free port: ", std::strerror(errno));
  ::close(fd);
  return ntohs(address.sin_port);
}

StreamItem sequence(int64_t tokens, bool zigzag) {
  StreamItem item;
  item.key = {1, 0, 0};
  item.layout = whole_item(tokens);
  const std::vector<int> ranks = zigzag ? std::vector<int>{0, 1, 1, 0} : std::vector<int>{0, 1};
  const auto n = static_cast<int64_t>(ranks.size());
  for (int64_t i = 0; i < n; ++i)
    item.pieces.push_back({ranks[static_cast<size_t>(i)], tokens * i / n, tokens * (i + 1) / n - tokens * i / n});
  return item;
}

// Seconds of one forward and backward on this rank's rows. `used` is what the attention sees of `comm`.
double attend(Communicator& comm, Communicator& used, const StreamItem& item, int tile_queries, int64_t heads,
              int64_t kv_heads) {
  test::Ranked ranked({item}, {item}, used, tile_queries);
  UnitContext ctx = ranked.context();
  int64_t rows = 0;
  for (const Piece& piece : item.pieces) rows += piece.rank == comm.rank() ? piece.rows : 0;
  const auto input = [&](int64_t h) { return at::randn({rows, h * kDim}).requires_grad_(); };
  const Tensor q = input(heads), k = input(kv_heads), v = input(kv_heads), gradient = at::randn({rows, heads * kDim});
  AttentionSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = kDim;
  spec.causal = true;
  if (comm.world() > 1) comm.barrier("bench: begin", world_group(comm.world()));
  const double begin = now();
  Attention attention = ctx.attention(spec);
  attention.query(q);
  attention.key(k);
  attention.value(v);
  attention.output().backward(gradient);
  if (comm.world() > 1) comm.barrier("bench: end", world_group(comm.world()));
  return now() - begin;
}

struct Hiding {
  double alone = 0;   // seconds of all messages, one after the other with nothing else to do
  double waited = 0;  // seconds in which the rank stood still for them, of each at most what it takes alone
};

// Beyond what a message takes alone, a rank waits for its peer's work and not for the link.
Hiding hiding_of(Communicator& comm, const std::vector<WaitClock::Call>& calls) {
  Hiding out;
  for (const WaitClock::Call& call : calls) {
    comm.barrier("bench: begin", world_group(kRanks));
    const double begin = now();
    comm.exchange(call.what, call.sends, call.receives).wait();
    const double alone = now() - begin;
    out.alone += alone;
    out.waited += std::min(call.waited, alone);
  }
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Way {
  const char* name;
  bool zigzag;
  int tile_queries;
  std::vector<double> seconds{}, alone{}, waited{};
  int64_t bytes = 0;
};

void measure(Communicator& comm, int64_t tokens, int rounds) {
  StreamItem half = sequence(tokens, false);
  half.pieces = {{0, 0, tokens}};
  Way ways[] = {{"ulysses", false, kByHeads}, {"ring", true, 1}};
  std::vector<double> single, both;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    double one = 0;
    if (comm.rank() == 0) one = attend(alone(), alone(), half, kByHeads, kHeads / 2, kKvHeads / 2);
    comm.barrier("bench: next", world_group(kRanks));
    const double begin = now();
    attend(alone(), alone(), half, kByHeads, kHeads / 2, kKvHeads / 2);
    comm.barrier("bench: next", world_group(kRanks));
    if (round > 0) single.push_back(one);
    if (round > 0) both.push_back(now() - begin);
    for (Way& way : ways) {
      WaitClock clock(comm);
      const double seconds = attend(comm, clock, sequence(tokens, way.zigzag), way.tile_queries, kHeads, kKvHeads);
      way.bytes = clock.bytes_sent();
      const Hiding hiding = hiding_of(comm, clock.calls);
      if (round == 0) continue;
      way.waited.push_back(hiding.waited);
      way.seconds.push_back(seconds);
      way.alone.push_back(hiding.alone);
    }
  }
  if (comm.rank() != 0) return;
  for (const Way& way : ways) {
    const double seconds = median(way.seconds), wire = median(way.alone), busy = median(both);
    const double hidden = 1 - median(way.waited) / wire;
    std::printf("%7lld  %-8s %9.3f %11.3f %11.3f %11.3f %11.3f %10.1f %9.4f %8.2f\n", static_cast<long long>(tokens),
                way.name, seconds, median(single), median(single) / seconds, busy, busy / seconds,
                static_cast<double>(way.bytes) / 1048576.0, wire, hidden);
  }
  std::fflush(stdout);
}

int run_rank(int rank, int port, int rounds, const std::vector<int64_t>& sizes) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(rank, &cores);
  if (::sched_setaffinity(0, sizeof cores, &cores) != 0) std::fprintf(stderr, "rank %d is not pinned\n", rank);
  at::set_num_threads(1);
  RankPlace place;
  place.rank = place.local_rank = rank;
  place.world = place.local_world = kRanks;
  place.port = port;
  const std::unique_ptr<Communicator> comm = join_world(place);
  if (rank == 0) {
    std::printf("%7s  %-8s %9s %11s %11s %11s %11s %10s %9s %8s\n", "tokens", "way", "seconds", "half alone",
                "efficiency", "half, both", "efficiency", "MiB sent", "exchange", "hidden");
  }
  for (const int64_t tokens : sizes) measure(*comm, tokens, rounds);
  return 0;
}

}  // namespace
}  // namespace loom

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
  std::vector<int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {8192, 16384, 32768};
  if (rounds < 1 || *std::min_element(sizes.begin(), sizes.end()) < 4) {
    std::fprintf(stderr, "attention_ranks [ROUNDS >= 1] [TOKENS >= 4 ...]\n");
    return 2;
  }
  const int port = loom::free_port();
  const pid_t other = ::fork();
  try {
    const int code = loom::run_rank(other == 0 ? 1 : 0, port, rounds, sizes);
    if (other == 0) return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", other == 0 ? 1 : 0, error.what());
    return 1;
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
