// Two threads per rank: one talks to the store and may hang with it; the other only looks at clocks, so a store that
// stopped answering is noticed, too. Both share a state that outlives the object, since a thread that hangs in the
// store cannot be joined.
#include "core/comm/vital_signs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/comm/process_world.h"

namespace loom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestInterval = 1;  // seconds between signs
constexpr double kSuspicious = 2;       // seconds of waiting after which a peer is looked at
constexpr double kAgreement = 3;        // seconds that a rank waits for the common cause
constexpr auto kGlance = std::chrono::milliseconds(50);
constexpr size_t kRemembered = 64;        // messages per peer
constexpr char kOwnReason = '!';          // before a cause that a rank has told of itself
const char* const kFailed = "failed";     // the cause, written once
const char* const kSeen = "failed/seen";  // ranks that have read it

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
std::string pulse_key(int rank) { return concat("pulse/", rank); }

}  // namespace

PeerFailed::~PeerFailed() = default;

struct VitalSigns::State {
  // A parcel that owns its name.
  struct Named {
    int queue = 0, peer = 0;
    uint64_t ticket = 0;
    std::string what;
    int64_t bytes = 0;
    Named() = default;
    explicit Named(const Parcel& p) : queue(p.queue), peer(p.peer), ticket(p.ticket), what(p.what), bytes(p.bytes) {}
  };
  struct Entry {
    Named parcel;
    double timeout = 0;
    std::function<void()> abort;
    Clock::time_point begin = Clock::now();
  };
  // What is known of another rank's signs.
  struct Seen {
    std::string sign;
    Clock::time_point changed = Clock::now();
  };

  VitalOptions options;
  std::unique_ptr<Store> store;  // of the pulse thread alone
  double interval = kLongestInterval;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<size_t, Entry> waits;
  std::map<std::pair<int, int>, std::array<Named, kRemembered>> sent;  // the newest, by queue and peer
  size_t next_wait = 0;
  bool stopping = false, pulse_ended = false;
  std::string to_post;                 // a cause that this rank has found
  std::optional<std::string> failure;  // the one that counts
  bool of_peer = false;                // and whether it is a rank's own reason
  bool store_answers = true;
  Clock::time_point answered = Clock::now();

  int world() const { return static_cast<int>(options.hosts.size()); }
  std::string name(int rank) const {
    return concat("rank ", rank, " (", options.hosts[static_cast<size_t>(rank)], ")");
  }
  std::string store_words() const {
    return options.store_at_rank0 ? concat("lost ", name(0), ", which holds the store")
                                  : std::string("lost the launcher's store");
  }

  // The following with the mutex held.
  [[noreturn]] void raise(const std::string& where) const {
    if (of_peer) throw PeerFailed(*failure + where);
    throw CommError(*failure + where);
  }
  void settle(const std::string& words) {
    if (!failure.has_value()) {
      of_peer = words.starts_with(kOwnReason);
      failure = words.substr(of_peer ? 1 : 0);
    }
    for (auto& [id, entry] : waits) entry.abort();
    changed.notify_all();
  }
  const Entry* longest() const {
    const Entry* found = nullptr;
    for (const auto& [id, entry] : waits) {
      if (found == nullptr || entry.begin < found->begin) found = &entry;
    }
    return found;
  }
  std::string doing() const {
    const Entry* wait = longest();
    if (wait == nullptr || since(wait->begin) < kSuspicious) return "runs";
    const Named& p = wait->parcel;
    return concat("waits\t", p.peer, "\t", p.queue, "\t", p.ticket, "\t", p.bytes, "\t", p.what);
  }

  // Why a peer with this sign will never get what it waits for; "" when it may.
  std::string disagreement(int peer, const std::string& sign) const;

  void pulse();
  void beat(uint64_t count, std::map<int, Seen>& seen, bool& told);
  void glance();
  void look_at_clocks();
};

// One exchange with the store.
void VitalSigns::State::beat(uint64_t count, std::map<int, Seen>& seen, bool& told) {
  std::string mine, post;
  int suspect = -1;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    mine = doing();
    post = to_post;
    const Entry* wait = longest();
    if (wait != nullptr && since(wait->begin) > kSuspicious) suspect = wait->parcel.peer;
  }
  store->set(pulse_key(options.rank), concat(count, "\t", mine));
  std::optional<std::string> cause = store->find(kFailed);
  if (!cause.has_value() && !post.empty()) cause = store->claim(kFailed, post);
  if (cause.has_value()) {
    if (!std::exchange(told, true)) store->add(kSeen, 1);
    const std::lock_guard<std::mutex> guard(mutex);
    answered = Clock::now();
    settle(*cause);
    return;
  }
  std::string suspicious, lost;
  for (const int peer : {(options.rank + 1) % world(), suspect}) {
    if (peer < 0 || peer == options.rank) continue;
    const std::string sign = store->find(pulse_key(peer)).value_or("");
    Seen& known = seen[peer];
    if (sign != known.sign) {
      known = {sign, Clock::now()};
    } else if (since(known.changed) > options.patience) {
      lost = concat("lost ", name(peer), ": no sign of life for ", options.patience, " s");
    }
    if (peer == suspect) suspicious = sign;
  }
  const std::lock_guard<std::mutex> guard(mutex);
  answered = Clock::now();
  if (!to_post.empty()) return;
  to_post = lost.empty() && suspect >= 0 ? disagreement(suspect, suspicious) : lost;
}

std::string VitalSigns::State::disagreement(int peer, const std::string& sign) const {
  std::istringstream in(sign.substr(std::min(sign.size(), sign.find('\t') + 1)));
  Named theirs;
  std::string word;
  int of = -1;
  if (!(in >> word >> of >> theirs.queue >> theirs.ticket >> theirs.bytes) || word != "waits" || of != options.rank)
    return "";
  std::getline(in >> std::ws, theirs.what);
  const auto found = sent.find({theirs.queue, peer});
  if (found == sent.end()) return "";
  const Named& ours = found->second[theirs.ticket % kRemembered];
  if (ours.ticket != theirs.ticket || (ours.what == theirs.what && ours.bytes == theirs.bytes)) return "";
  if (ours.what == theirs.what)
    return concat("in '", ours.what, "' ", name(peer), " expects ", theirs.bytes, " bytes, ", name(options.rank),
                  " sent ", ours.bytes, ": the ranks disagree about size or type");
  return concat(name(peer), " is in '", theirs.what, "', ", name(options.rank), " sent '", ours.what,
                "': the ranks disagree about what comes next");
}

void VitalSigns::State::pulse() {
  std::map<int, Seen> seen;
  bool told = false;
  for (uint64_t count = 1;; ++count) {
    std::string problem;
    try {
      beat(count, seen, told);
    } catch (const std::exception&) {
      problem = store_words();
    }
    std::unique_lock<std::mutex> lock(mutex);
    if (!problem.empty()) {
      store_answers = false;
      if (!stopping) settle(problem);
      break;
    }
    if (stopping) break;
    if (!to_post.empty() && !failure.has_value()) continue;
    changed.wait_for(lock, std::chrono::duration<double>(interval),
                     [&] { return stopping || (!to_post.empty() && !failure.has_value()); });
    if (stopping) break;
  }
  const std::lock_guard<std::mutex> guard(mutex);
  pulse_ended = true;
  changed.notify_all();
}

void VitalSigns::State::look_at_clocks() {
  if (failure.has_value()) {
    for (auto& [id, entry] : waits) entry.abort();  // also those that began since
    return;
  }
  if (store_answers && since(answered) > options.patience) {
    store_answers = false;
    settle(concat(store_words(), ": it does not answer for ", options.patience, " s"));
    return;
  }
  for (const auto& [id, entry] : waits) {
    if (entry.timeout <= 0 || since(entry.begin) < entry.timeout || !to_post.empty()) continue;
    to_post = concat(name(options.rank), ": no answer from ", name(entry.parcel.peer), " for ", entry.timeout,
                     " s in '", entry.parcel.what, "'");
    changed.notify_all();
  }
}

void VitalSigns::State::glance() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping) {
    look_at_clocks();
    changed.wait_for(lock, kGlance);
  }
}

VitalSigns::VitalSigns(VitalOptions options, std::unique_ptr<Store> store) : state_(std::make_shared<State>()) {
  state_->interval = std::min(kLongestInterval, options.patience / 5);
  state_->options = std::move(options);
  state_->store = std::move(store);
  std::thread([state = state_] { state->pulse(); }).detach();
  std::thread([state = state_] { state->glance(); }).detach();
}

VitalSigns::~VitalSigns() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  State& state = *state_;
  const auto within = [&](double seconds, const auto& done) {
    return state.changed.wait_for(lock, std::chrono::duration<double>(seconds), done);
  };
  const bool holds = state.options.store_at_rank0 && state.options.rank == 0;
  // Everybody reads the cause within two intervals.
  if (state.failure.has_value() && holds && state.store_answers)
    within(2 * state.interval + 0.5, [&] { return state.pulse_ended; });
  state.stopping = true;
  state.changed.notify_all();
  // A store that hangs keeps its thread; the state is then left to it.
  within(1, [&] { return state.pulse_ended; });
}

VitalSigns::Wait::Wait(VitalSigns& signs, Waiting waiting) : signs_(signs) {
  State& state = *signs_.state_;
  const std::lock_guard<std::mutex> guard(state.mutex);
  if (state.failure.has_value()) state.raise("");
  id_ = state.next_wait++;
  state.waits.emplace(id_, State::Entry{State::Named(waiting.parcel), waiting.timeout, std::move(waiting.abort)});
}

VitalSigns::Wait::~Wait() {
  State& state = *signs_.state_;
  const std::lock_guard<std::mutex> guard(state.mutex);
  state.waits.erase(id_);
}

void VitalSigns::sent(const Parcel& parcel) {
  const std::lock_guard<std::mutex> guard(state_->mutex);
  State::Named& place = state_->sent[{parcel.queue, parcel.peer}][parcel.ticket % kRemembered];
  place.ticket = parcel.ticket;
  place.what.assign(parcel.what);
  place.bytes = parcel.bytes;
}

void VitalSigns::fail(int peer, std::string_view what, const std::string& reason) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  State& state = *state_;
  const std::string seen = concat("lost ", state.name(peer), ": ", reason, ", noticed by ",
                                  state.name(state.options.rank), " in '", what, "'");
  if (!state.failure.has_value()) {
    if (state.to_post.empty()) state.to_post = seen;
    state.changed.notify_all();
    state.changed.wait_for(lock, std::chrono::duration<double>(kAgreement), [&] { return state.failure.has_value(); });
    if (!state.failure.has_value()) state.settle(seen);
  }
  state.raise(concat("; this is ", state.name(state.options.rank), " in '", what, "'"));
}

void VitalSigns::report(const std::string& words) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  State& state = *state_;
  if (state.failure.has_value()) return;
  state.to_post = concat(kOwnReason, state.name(state.options.rank), " failed: ", words);
  state.changed.notify_all();
  state.changed.wait_for(lock, std::chrono::duration<double>(kAgreement), [&] { return state.failure.has_value(); });
}

}  // namespace loom
