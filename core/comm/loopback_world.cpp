// Bytes are copied outside the mutex; inside, a message is only linked or unlinked. One condition variable per rank:
// whoever sends wakes the one rank that may be waiting for it.
#include "core/comm/loopback_world.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/first_calls.h"

namespace loom {

LoopbackWorld::LoopbackWorld(int size)
    : ranks_(static_cast<size_t>(size)), boxes_(static_cast<size_t>(size) * static_cast<size_t>(size)) {
  settle_vector_math();  // its ranks are threads
}

std::shared_ptr<LoopbackWorld> LoopbackWorld::sibling(int rank, const std::string& name) {
  const std::lock_guard<std::mutex> guard(mutex_);
  throw_if_failed();
  const size_t self = static_cast<size_t>(rank);
  for (auto& [of, sibling] : siblings_) {
    if (of != name || sibling.taken[self]) continue;
    sibling.taken[self] = true;
    return sibling.world;
  }
  Sibling fresh{std::make_shared<LoopbackWorld>(size()), std::vector<bool>(ranks_.size(), false)};
  fresh.taken[self] = true;
  siblings_.emplace_back(name, fresh);
  return fresh.world;
}

LoopbackWorld::Mailbox& LoopbackWorld::box(int source, int destination) {
  return boxes_[static_cast<size_t>(source) * ranks_.size() + static_cast<size_t>(destination)];
}

void LoopbackWorld::send(int source, int destination, std::string_view what, const Tensor& tensor) {
  Parcel parcel{std::string(what), tensor.scalar_type(), tensor.numel(), nullptr};
  const size_t bytes = tensor.nbytes();
  if (bytes > 0) {
    parcel.bytes.reset(new char[bytes]);
    std::memcpy(parcel.bytes.get(), tensor.const_data_ptr(), bytes);
  }
  const std::lock_guard<std::mutex> guard(mutex_);
  throw_if_failed();
  Mailbox& mailbox = box(source, destination);
  mailbox.parcels.emplace(mailbox.sent++, std::move(parcel));
  Rank& rank = ranks_[static_cast<size_t>(destination)];
  if (rank.doing == Doing::waiting && rank.peer == source) rank.changed.notify_one();
}

uint64_t LoopbackWorld::expect(int source, int destination) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return box(source, destination).expected++;
}

void LoopbackWorld::receive(int source, int destination, uint64_t ticket, const std::string& what, const Tensor& tensor,
                            double timeout) {
  const Parcel parcel = take(source, destination, ticket, what, timeout);
  std::string problem;
  if (parcel.what != what) {
    problem = concat("rank ", destination, " is in '", what, "', rank ", source, " sent '", parcel.what,
                     "': the ranks disagree about what comes next");
  } else if (parcel.numel != tensor.numel() || parcel.type != tensor.scalar_type()) {
    problem = concat("in '", what, "' rank ", destination, " expects ", tensor.numel(), " values of type ",
                     tensor.scalar_type(), ", rank ", source, " sent ", parcel.numel, " of type ", parcel.type,
                     ": the ranks disagree about size or type");
  }
  if (!problem.empty()) {
    const std::lock_guard<std::mutex> guard(mutex_);
    fail_and_throw(destination, problem);
  }
  if (tensor.numel() > 0) std::memcpy(tensor.mutable_data_ptr(), parcel.bytes.get(), tensor.nbytes());
}

Parcel LoopbackWorld::take(int source, int destination, uint64_t ticket, const std::string& what, double timeout) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock<std::mutex> lock(mutex_);
  Mailbox& mailbox = box(source, destination);
  Rank& self = ranks_[static_cast<size_t>(destination)];
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout));
  bool late = false;
  while (true) {
    throw_if_failed();
    const auto found = mailbox.parcels.find(ticket);
    if (found != mailbox.parcels.end()) {
      Parcel parcel = std::move(found->second);
      mailbox.parcels.erase(found);
      self.doing = Doing::running;
      return parcel;
    }
    self.doing = Doing::waiting;
    self.peer = source;
    self.ticket = ticket;
    self.what = what;
    const bool hopeless = ranks_[static_cast<size_t>(source)].doing == Doing::finished || in_circle(destination);
    if (late || hopeless) fail_and_throw(destination, describe(destination, late ? concat(timeout) : ""));
    if (timeout > 0) {
      late = self.changed.wait_until(lock, end) == std::cv_status::timeout;
    } else {
      self.changed.wait(lock);
    }
  }
}

bool LoopbackWorld::stuck(int rank) {
  const Rank& state = ranks_[static_cast<size_t>(rank)];
  return state.doing == Doing::waiting && box(state.peer, rank).parcels.count(state.ticket) == 0;
}

bool LoopbackWorld::in_circle(int rank) {
  int at = rank;
  for (size_t step = 0; step < ranks_.size() && stuck(at); ++step) {
    at = ranks_[static_cast<size_t>(at)].peer;
    if (at == rank) return true;
  }
  return false;
}

std::string LoopbackWorld::describe(int rank, const std::string& since) {
  std::string out;
  std::vector<bool> seen(ranks_.size(), false);
  int at = rank;
  while (stuck(at)) {
    const Rank& state = ranks_[static_cast<size_t>(at)];
    out += concat("rank ", at, " waits for rank ", state.peer, " in '", state.what, "'");
    if (at == rank && !since.empty()) out += concat(" since ", since, " s");
    seen[static_cast<size_t>(at)] = true;
    at = state.peer;
    if (seen[static_cast<size_t>(at)]) return out + ": they wait for each other";
    out += "; ";
  }
  return out +
         concat("rank ", at, ranks_[static_cast<size_t>(at)].doing == Doing::finished ? " has finished" : " runs");
}

void LoopbackWorld::throw_if_failed() const {
  if (failed_ >= 0) throw CommError(concat("rank ", failed_, " failed: ", words_));
}

void LoopbackWorld::mark_failed(int rank, const std::string& words) {
  if (failed_ >= 0) return;
  failed_ = rank;
  words_ = words;
  for (Rank& other : ranks_) other.changed.notify_all();
  for (auto& [name, sibling] : siblings_) sibling.world->fail(rank, words);
}

void LoopbackWorld::fail_and_throw(int rank, const std::string& words) {
  ranks_[static_cast<size_t>(rank)].doing = Doing::running;
  throw_if_failed();
  mark_failed(rank, words);
  throw CommError(words);
}

void LoopbackWorld::finish(int rank) {
  const std::lock_guard<std::mutex> guard(mutex_);
  ranks_[static_cast<size_t>(rank)].doing = Doing::finished;
  for (Rank& other : ranks_) {
    if (other.doing == Doing::waiting && other.peer == rank) other.changed.notify_all();
  }
}

void LoopbackWorld::fail(int rank, const std::string& words) {
  const std::lock_guard<std::mutex> guard(mutex_);
  mark_failed(rank, words);
}

int LoopbackWorld::failed_rank() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return failed_;
}

void LoopbackWorld::check_empty() {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (int source = 0; source < size(); ++source) {
    for (int destination = 0; destination < size(); ++destination) {
      const Mailbox& mailbox = box(source, destination);
      LOOM_CHECK(mailbox.parcels.empty(), "rank ", source, " sent '", mailbox.parcels.begin()->second.what,
                 "' to rank ", destination, ", which never received it");
    }
  }
}

}  // namespace loom
