#pragma once
// Ranks that meet and talk as processes do, over sockets of this machine, but are threads of one test.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/process_world.h"

namespace loom::test {

// A port that nobody listens on.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(socket);
  LOOM_CHECK(bound, "no free port on loopback");
  return ntohs(address.sin_port);
}

inline RankPlace place_of(int rank, int world, int port) {
  RankPlace place;
  place.rank = place.local_rank = rank;
  place.world = place.local_world = world;
  place.port = port;
  place.launcher = "test";
  return place;
}

// What each rank threw, null for those that did not.
inline std::vector<std::exception_ptr> run_gloo(int world, const WorldOptions& options,
                                                const std::function<void(Communicator&)>& body) {
  const int port = free_port();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto comm = join_world(place_of(rank, world, port), options);
        body(*comm);
        comm->barrier("end", world_group(world));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void run_gloo(int world, const std::function<void(Communicator&)>& body) {
  for (const std::exception_ptr& error : run_gloo(world, {}, body)) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::string words_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

}  // namespace loom::test
