// Two notes per message: "offer" (where it lies) to the receiver, "taken" to the sender. Notes never block: one that
// the socket does not take waits for the thread, which alone reads notes and copies messages.
#include "core/comm/neighbors.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/error.h"

namespace loom {
namespace {

constexpr auto kFarewell = std::chrono::seconds(1);  // for notes that nobody has read when this process ends

struct Note {
  enum Kind : int32_t { offer = 1, taken };
  int32_t kind = offer;
  int32_t queue = 0;
  uint64_t ticket = 0, tag = 0, address = 0;
};

}  // namespace

class Neighbors::Transfer {
 public:
  enum class Stage { waits, moves, done, broken };
  Transfer(const Key& of, const Tensor& moved) : key(of), tensor(moved) {}
  bool ended() const { return stage == Stage::done || stage == Stage::broken; }

  Key key;
  Tensor tensor;
  Stage stage = Stage::waits;
};

struct Neighbors::State {
  struct Link {
    NeighborLink link;
    bool open = true;
    std::deque<Note> unsent;
  };
  struct Job {
    Handle handle;
    uint64_t address = 0;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Link> links;
  std::map<Key, Handle> sends, receives;  // nobody has taken, nobody has offered
  std::map<Key, uint64_t> offers;         // nobody has asked for
  std::deque<Job> jobs;
  int wake = -1;
  bool stopping = false;
  std::thread thread;

  Link* find(int peer) {
    const auto found = std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.link.peer == peer; });
    return found == links.end() ? nullptr : &*found;
  }
  void ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake, &one, sizeof(one));
  }

  // The following ones are called with the mutex locked.
  void end(const Handle& handle, Transfer::Stage stage) {
    handle->stage = stage;
    changed.notify_all();
  }
  void close(Link& link) {
    link.open = false;
    link.unsent.clear();
    for (auto* waiting : {&sends, &receives}) {
      std::erase_if(*waiting, [&](const auto& entry) {
        if (entry.first.peer != link.link.peer) return false;
        end(entry.second, Transfer::Stage::broken);
        return true;
      });
    }
    std::erase_if(jobs, [&](const Job& job) {
      if (job.handle->key.peer != link.link.peer) return false;
      end(job.handle, Transfer::Stage::broken);
      return true;
    });
  }
  void flush(Link& link) {
    while (link.open && !link.unsent.empty()) {
      if (::send(link.link.socket, &link.unsent.front(), sizeof(Note), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        if (errno == EINTR) continue;
        return close(link);
      }
      link.unsent.pop_front();
    }
  }
  void tell(Link& link, const Key& key, Note::Kind kind, uint64_t address) {
    link.unsent.push_back({kind, key.queue, key.ticket, key.tag, address});
    flush(link);
  }
  void heard(const Link& link, const Note& note) {
    const Key key{note.queue, link.link.peer, note.ticket, note.tag};
    auto& waiting = note.kind == Note::offer ? receives : sends;
    const auto found = waiting.find(key);
    if (note.kind == Note::offer) {
      if (found == waiting.end()) {
        offers[key] = note.address;
        return;
      }
      jobs.push_back({found->second, note.address});
    } else if (found != waiting.end()) {
      end(found->second, Transfer::Stage::done);
    }
    if (found != waiting.end()) waiting.erase(found);
  }
  void listen(Link& link) {
    while (link.open) {
      Note note;
      const ssize_t size = ::recv(link.link.socket, &note, sizeof(note), MSG_DONTWAIT);
      if (size == sizeof(note)) {
        heard(link, note);
      } else if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return;
      } else if (size >= 0 || errno != EINTR) {
        close(link);
      }
    }
  }
  bool unsent() const {
    return std::any_of(links.begin(), links.end(), [](const Link& link) { return !link.unsent.empty(); });
  }

  // The copy itself runs unlocked; nobody but this thread changes `links`' members that it reads.
  void copy_one(std::unique_lock<std::mutex>& lock) {
    const Job job = std::move(jobs.front());
    jobs.pop_front();
    if (job.handle->ended()) return;  // aborted
    Transfer& transfer = *job.handle;
    Link& link = *find(transfer.key.peer);
    transfer.stage = Transfer::Stage::moves;
    lock.unlock();
    const bool whole = read_memory(link.link.process, job.address, transfer.tensor.mutable_data_ptr(),
                                   static_cast<int64_t>(transfer.tensor.nbytes()));
    lock.lock();
    end(job.handle, whole ? Transfer::Stage::done : Transfer::Stage::broken);
    if (whole && link.open) tell(link, transfer.key, Note::taken, 0);
  }

  void wait_for_notes(int milliseconds) {
    std::vector<pollfd> waited{{wake, POLLIN, 0}};
    {
      const std::lock_guard<std::mutex> guard(mutex);
      for (const Link& link : links) {
        const auto events = static_cast<short>(POLLIN | (link.unsent.empty() ? 0 : POLLOUT));
        if (link.open) waited.push_back({link.link.socket, events, 0});
      }
    }
    ::poll(waited.data(), waited.size(), milliseconds);
    if ((waited.front().revents & POLLIN) == 0) return;
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(wake, &count, sizeof(count));
  }

  void run() {
    auto end = std::chrono::steady_clock::time_point::max();
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex);
      for (Link& link : links) {
        listen(link);
        flush(link);
      }
      if (stopping) {
        const auto now = std::chrono::steady_clock::now();
        end = std::min(end, now + kFarewell);
        if (!unsent() || now > end) return;
      } else if (!jobs.empty()) {
        copy_one(lock);
        continue;
      }
      const int milliseconds = stopping ? 10 : -1;
      lock.unlock();
      wait_for_notes(milliseconds);
    }
  }
};

Neighbors::Neighbors(std::vector<NeighborLink> links) : state_(std::make_unique<State>()) {
  for (const NeighborLink& link : links) state_->links.push_back({link, true, {}});
  if (links.empty()) return;
  state_->wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  LOOM_CHECK(state_->wake >= 0, "no file descriptor for a thread that moves messages");
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Neighbors::~Neighbors() {
  if (state_->thread.joinable()) {
    {
      const std::lock_guard<std::mutex> guard(state_->mutex);
      state_->stopping = true;
    }
    state_->ring();
    state_->thread.join();
    ::close(state_->wake);
  }
  for (const State::Link& link : state_->links) ::close(link.link.socket);
}

bool Neighbors::reaches(int peer) const { return state_->find(peer) != nullptr; }

Neighbors::Handle Neighbors::send(const Key& key, const Tensor& tensor) {
  auto out = std::make_shared<Transfer>(key, tensor);
  const std::lock_guard<std::mutex> guard(state_->mutex);
  State::Link& link = *state_->find(key.peer);
  state_->sends[key] = out;
  if (link.open) state_->tell(link, key, Note::offer, reinterpret_cast<uint64_t>(tensor.const_data_ptr()));
  if (!link.open) state_->close(link);  // breaks what was added since
  if (!link.unsent.empty()) state_->ring();
  return out;
}

Neighbors::Handle Neighbors::receive(const Key& key, const Tensor& tensor) {
  auto out = std::make_shared<Transfer>(key, tensor);
  const std::lock_guard<std::mutex> guard(state_->mutex);
  const auto offered = state_->offers.find(key);
  if (!state_->find(key.peer)->open) {
    out->stage = Transfer::Stage::broken;
  } else if (offered == state_->offers.end()) {
    state_->receives[key] = out;
  } else {
    state_->jobs.push_back({out, offered->second});
    state_->offers.erase(offered);
    state_->ring();
  }
  return out;
}

bool Neighbors::wait(const Handle& handle) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait(lock, [&] { return handle->ended(); });
  return handle->stage == Transfer::Stage::done;
}

// A copy under way ends by itself, and before wait() returns: the tensor may be freed after it.
void Neighbors::abort(const Handle& handle) {
  const std::lock_guard<std::mutex> guard(state_->mutex);
  if (handle->stage != Transfer::Stage::waits) return;
  state_->end(handle, Transfer::Stage::broken);
  for (auto* waiting : {&state_->sends, &state_->receives}) {
    const auto found = waiting->find(handle->key);
    if (found != waiting->end() && found->second == handle) waiting->erase(found);
  }
}

}  // namespace loom
