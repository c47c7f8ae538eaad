#pragma once
// Small facts that the ranks of a run share by name: addresses, hosts, who is alive, why the run ended. One server, at
// rank 0 or at the launcher; every Store is a connection of its own and used by one thread at a time.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/rank_place.h"

namespace loom {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Nothing when nobody has set it.
  virtual std::optional<std::string> find(const std::string& key) = 0;
  // Sets what nobody has set before; returns what then stands there.
  virtual std::string claim(const std::string& key, const std::string& value) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  virtual std::unique_ptr<Store> another_connection() = 0;
};

// Holds the server when this is rank 0 and no launcher does. UserError when the port is taken; CommError when nobody
// answers at the address for `seconds`.
std::unique_ptr<Store> open_store(const RankPlace& place, double seconds);

}  // namespace loom
