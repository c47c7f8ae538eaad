// The store over c10d's TCPStore. Errors of connecting are told in our words: they are the first that people meet.
#include "core/comm/store_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/error_words.h"

namespace loom {
namespace {

constexpr double kOwnServer = 60;  // seconds

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

class TcpStore final : public Store {
 public:
  TcpStore(const RankPlace& place, bool server, double seconds) : place_(place), seconds_(seconds) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(place.port);
    options.isServer = server;
    options.waitWorkers = false;
    // The server answers itself; only a machine that stands still makes that last.
    const double patience = server ? std::max(seconds, kOwnServer) : seconds;
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(patience * 1000));
    tcp_ = c10::make_intrusive<c10d::TCPStore>(place.address, options);
    keys_ = tcp_;
    if (!place.store_prefix.empty()) keys_ = c10::make_intrusive<c10d::PrefixStore>(place.store_prefix, tcp_);
  }

  void set(const std::string& key, const std::string& value) override { keys_->set(key, bytes_of(value)); }
  std::optional<std::string> find(const std::string& key) override {
    if (!keys_->check({key})) return std::nullopt;
    return text_of(keys_->get(key));
  }
  std::string claim(const std::string& key, const std::string& value) override {
    return text_of(keys_->compareSet(key, {}, bytes_of(value)));
  }
  int64_t add(const std::string& key, int64_t amount) override { return keys_->add(key, amount); }
  std::unique_ptr<Store> another_connection() override { return std::make_unique<TcpStore>(place_, false, seconds_); }
  const c10::intrusive_ptr<c10d::Store>& keys() const { return keys_; }

 private:
  RankPlace place_;
  double seconds_;
  c10::intrusive_ptr<c10d::Store> tcp_, keys_;
};

}  // namespace

Store::~Store() = default;

std::unique_ptr<Store> open_store(const RankPlace& place, double seconds) {
  const bool server = place.rank == 0 && !place.store_elsewhere;
  const std::string at = concat(place.address, ":", place.port);
  try {
    return std::make_unique<TcpStore>(place, server, seconds);
  } catch (const std::exception& error) {
    const std::string words = error_words(error);
    const bool taken = words.find("EADDRINUSE") != std::string::npos || words.find("in use") != std::string::npos;
    if (server && taken)
      throw UserError(
          concat("rank 0 cannot wait for the other ranks at ", at, ": the port is taken; choose another one"));
    if (server) throw EnvironmentError(concat("rank 0 cannot wait for the other ranks at ", at, ": ", words));
    throw CommError(concat("rank ", place.rank, ": nobody answers at ", at, " for ", seconds,
                           " s; is rank 0 running there, and is it reachable from here? (", words, ")"));
  }
}

c10::intrusive_ptr<c10d::Store> c10d_store(Store& store, const std::string& prefix) {
  auto* tcp = dynamic_cast<TcpStore*>(&store);
  LOOM_CHECK(tcp != nullptr, "a store of another kind");
  return c10::make_intrusive<c10d::PrefixStore>(prefix, tcp->keys());
}

}  // namespace loom
