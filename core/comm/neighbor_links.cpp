// A rank publishes where a random number lies in its memory and the name of a socket. Of each pair the higher rank
// connects, both read the other's number, and each tells the other whether it found it.
#include "core/comm/neighbor_links.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace loom {
namespace {

using Clock = std::chrono::steady_clock;

const char* const kAlone = "-";  // has no links

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// A name without a file, known to this machine alone.
struct Address {
  sockaddr_un words{};
  socklen_t size;

  explicit Address(const std::string& name)
      : size(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) {
    words.sun_family = AF_UNIX;
    std::memcpy(words.sun_path + 1, name.data(), std::min(name.size(), sizeof(words.sun_path) - 1));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&words); }
};

Socket make_socket() { return Socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

struct Card {
  int64_t process = 0;
  uint64_t address = 0, number = 0;
  std::string socket;
};

std::string to_text(const Card& card) {
  return concat(card.process, " ", card.address, " ", card.number, " ", card.socket);
}

// Nothing for a rank without links.
std::optional<Card> card_from(const std::string& text) {
  Card card;
  std::istringstream in(text);
  if (text == kAlone || !(in >> card.process >> card.address >> card.number >> card.socket)) return std::nullopt;
  return card;
}

bool finds(const Card& card) {
  uint64_t number = 0;
  return read_memory(card.process, card.address, &number, sizeof(number)) && number == card.number;
}

struct Hello {
  int32_t rank = 0;
  int32_t finds = 0;
};

bool say(const Socket& socket, const Hello& hello) {
  return ::send(socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello);
}

class Linker {
 public:
  Linker(Store& store, int rank, double seconds)
      : store_(store),
        rank_(rank),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  std::optional<Card> card_of(int peer) { return card_from(wait_for(key_of(peer), peer)); }

  // The lower rank of the pair listens.
  void call(int peer, std::vector<NeighborLink>& links) {
    const std::optional<Card> card = card_of(peer);
    if (!card.has_value()) return;
    Socket socket = make_socket();
    const Address address(card->socket);
    const bool connected = socket.open() && ::connect(socket.get(), address.get(), address.size) == 0;
    store_.set(key_of(peer, rank_), connected ? "calls" : kAlone);
    if (!connected) return;
    const bool found = finds(*card);
    const std::optional<Hello> answer = say(socket, {rank_, found ? 1 : 0}) ? hear(socket, peer) : std::nullopt;
    if (found && answer.has_value() && answer->finds == 1) links.push_back({peer, card->process, socket.release()});
  }

  void answer(const Socket& listener, const std::vector<int>& callers, std::vector<NeighborLink>& links) {
    std::map<int, Card> cards;
    for (const int peer : callers) {
      const std::optional<Card> card = card_of(peer);
      if (card.has_value() && wait_for(key_of(rank_, peer), peer) != kAlone) cards.emplace(peer, *card);
    }
    for (size_t i = 0; i < cards.size(); ++i) {
      await(listener, cards.begin()->first);
      Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.open()) continue;
      const std::optional<Hello> hello = hear(socket, cards.begin()->first);
      const auto card = hello.has_value() ? cards.find(hello->rank) : cards.end();
      if (card == cards.end()) continue;
      const bool found = finds(card->second);
      if (say(socket, {rank_, found ? 1 : 0}) && found && hello->finds == 1)
        links.push_back({card->first, card->second.process, socket.release()});
    }
  }

  static std::string key_of(int rank) { return concat("neighbor/", rank); }

 private:
  static std::string key_of(int listener, int caller) { return concat(key_of(listener), "/", caller); }

  [[noreturn]] void missing(int peer) const {
    throw CommError(concat("rank ", rank_, ": rank ", peer, " of this machine did not say in time whether their ",
                           "memory can be shared"));
  }

  std::string wait_for(const std::string& key, int peer) {
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
      if (std::optional<std::string> found = store_.find(key)) return *found;
      if (Clock::now() > end_) missing(peer);
      std::this_thread::sleep_for(pause);
    }
  }

  void await(const Socket& socket, int peer) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
    pollfd waited{socket.get(), POLLIN, 0};
    if (::poll(&waited, 1, static_cast<int>(std::max<int64_t>(left, 1))) <= 0) missing(peer);
  }

  std::optional<Hello> hear(const Socket& socket, int peer) const {
    await(socket, peer);
    Hello hello;
    if (::recv(socket.get(), &hello, sizeof(hello), 0) != sizeof(hello)) return std::nullopt;
    return hello;
  }

  Store& store_;
  int rank_;
  Clock::time_point end_;
};

}  // namespace

bool read_memory(int64_t process, uint64_t address, void* into, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const auto left = static_cast<size_t>(bytes - done);
    const iovec here{static_cast<char*>(into) + done, left};
    const iovec there{reinterpret_cast<void*>(address + static_cast<uint64_t>(done)), left};
    const ssize_t moved = ::process_vm_readv(static_cast<pid_t>(process), &here, 1, &there, 1, 0);
    if (moved <= 0) return false;
    done += moved;
  }
  return true;
}

std::vector<NeighborLink> link_neighbors(Store& store, const RankPlace& place, const std::vector<std::string>& hosts,
                                         bool wanted, double seconds) {
  std::vector<NeighborLink> links;
  std::vector<int> lower, higher;
  for (int peer = 0; peer < place.world; ++peer) {
    if (peer == place.rank || hosts[static_cast<size_t>(peer)] != hosts[static_cast<size_t>(place.rank)]) continue;
    (peer < place.rank ? lower : higher).push_back(peer);
  }
  if (lower.empty() && higher.empty()) return links;
  const std::string key = Linker::key_of(place.rank);
  std::random_device random;
  const uint64_t number = (uint64_t{random()} << 32) | random();
  const std::string name = concat("omniloom-", number, "-", place.rank);
  const Socket listener = make_socket();
  const Address address(name);
  if (!wanted || !listener.open() || ::bind(listener.get(), address.get(), address.size) != 0 ||
      ::listen(listener.get(), place.world) != 0) {
    store.set(key, kAlone);
    return links;
  }
  // Where only descendants may be read (Yama), the launcher's are: neighbours are its children.
  if (::getppid() > 1) ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(::getppid()), 0, 0, 0);
  store.set(key, to_text({::getpid(), reinterpret_cast<uint64_t>(&number), number, name}));
  Linker linker(store, place.rank, seconds);
  for (const int peer : lower) linker.call(peer, links);
  linker.answer(listener, higher, links);
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.peer < b.peer; });
  return links;
}

}  // namespace loom
