// Messages from memory to memory: in any order, without the peer's help, and what happens when it goes away.
#include "core/comm/neighbors.h"

#include <gtest/gtest.h>

#include <latch>
#include <random>
#include <thread>

#include "core/comm/store.h"
#include "tests/core/comm/gloo_threads.h"
#include "tests/core/comm/values.h"

namespace loom {
namespace {

using Body = std::function<void(int rank, std::vector<NeighborLink> links)>;

// Ranks as threads; `wanted` and `hosts` by rank.
void run_linked(const std::vector<bool>& wanted, const std::vector<std::string>& hosts, const Body& body) {
  const int world = static_cast<int>(wanted.size()), port = test::free_port();
  const auto server = open_store(test::place_of(0, world, port), 10);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto store = server->another_connection();
      body(rank,
           link_neighbors(*store, test::place_of(rank, world, port), hosts, wanted[static_cast<size_t>(rank)], 10));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void run_linked(int world, const std::function<void(int rank, Neighbors& near)>& body) {
  std::latch made(world);
  run_linked(std::vector<bool>(static_cast<size_t>(world), true),
             std::vector<std::string>(static_cast<size_t>(world), "here"),
             [&](int rank, std::vector<NeighborLink> links) {
               Neighbors near(std::move(links));
               made.arrive_and_wait();
               body(rank, near);
             });
}

TEST(Neighbors, LinksAreBetweenThoseOfOneHostWhoWantThem) {
  std::vector<std::vector<int>> peers(5);
  run_linked({true, true, false, true, true}, {"a", "b", "a", "a", "a"},
             [&](int rank, std::vector<NeighborLink> links) {
               for (const NeighborLink& link : links) {
                 peers[static_cast<size_t>(rank)].push_back(link.peer);
                 EXPECT_EQ(link.process, ::getpid());
                 ::close(link.socket);
               }
             });
  EXPECT_EQ(peers, (std::vector<std::vector<int>>{{3, 4}, {}, {}, {0, 4}, {0, 3}}));
}

TEST(Neighbors, MessagesOfManyQueuesMoveInAnyOrder) {
  constexpr int kWorld = 4, kMessages = 60;
  run_linked(kWorld, [&](int rank, Neighbors& near) {
    struct One {
      Neighbors::Handle handle;
      Tensor tensor, expected;
    };
    const auto values = [](int from, int to, int i) {
      return test::values_of(static_cast<uint64_t>(i * 100 + to), from, 1 + (i * 977) % 30'000, at::kFloat);
    };
    std::vector<std::pair<int, int>> order;  // peer, message
    for (int peer = 0; peer < kWorld; ++peer) {
      for (int i = 0; peer != rank && i < kMessages; ++i) order.emplace_back(peer, i);
    }
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<One> all;
    for (const bool sends : {rank % 2 == 0, rank % 2 != 0}) {
      std::shuffle(order.begin(), order.end(), random);
      for (const auto& [peer, i] : order) {
        const Neighbors::Key key{i % 3, peer, static_cast<uint64_t>(i), 7};
        if (sends) {
          const Tensor tensor = values(rank, peer, i);
          all.push_back({near.send(key, tensor), tensor, tensor});
        } else {
          const Tensor expected = values(peer, rank, i), tensor = at::zeros_like(expected);
          all.push_back({near.receive(key, tensor), tensor, expected});
        }
      }
    }
    std::shuffle(all.begin(), all.end(), random);
    for (const One& one : all) {
      EXPECT_TRUE(near.wait(one.handle));
      EXPECT_TRUE(test::same_bits(one.tensor, one.expected));
    }
  });
}

TEST(Neighbors, AnotherTagIsAnotherMessageAndAWaitCanBeAborted) {
  run_linked(2, [](int rank, Neighbors& near) {
    const Tensor tensor = at::full({1000}, rank, at::kFloat);
    const Neighbors::Key key{0, 1 - rank, 1, static_cast<uint64_t>(rank)};
    const auto handle = rank == 0 ? near.send(key, tensor) : near.receive(key, tensor);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      near.abort(handle);
      near.abort(handle);
    });
    EXPECT_FALSE(near.wait(handle));
    other.join();
    EXPECT_EQ(tensor[0].item<float>(), static_cast<float>(rank));
  });
}

TEST(Neighbors, APeerThatLeavesBreaksWhatWaitsForItAlone) {
  run_linked(3, [](int rank, Neighbors& near) {
    if (rank == 2) return;  // ends its links
    const Tensor tensor = at::full({1000}, rank, at::kFloat), got = at::zeros({1000});
    EXPECT_FALSE(near.wait(near.receive({0, 2, 1, 0}, got)));
    EXPECT_FALSE(near.wait(near.send({0, 2, 1, 0}, tensor)));
    const int peer = 1 - rank;
    const auto sent = near.send({0, peer, 1, 0}, tensor), taken = near.receive({0, peer, 1, 0}, got);
    EXPECT_TRUE(near.wait(taken));
    EXPECT_TRUE(near.wait(sent));
    EXPECT_EQ(got[999].item<float>(), static_cast<float>(peer));
  });
}

TEST(Neighbors, MemoryThatIsNotThereCannotBeRead) {
  uint64_t value = 5, read = 0;
  EXPECT_TRUE(read_memory(::getpid(), reinterpret_cast<uint64_t>(&value), &read, sizeof(read)));
  EXPECT_EQ(read, value);
  EXPECT_FALSE(read_memory(::getpid(), 8, &read, sizeof(read)));
  EXPECT_FALSE(read_memory(0x3fffffff, reinterpret_cast<uint64_t>(&value), &read, sizeof(read)));
}

}  // namespace
}  // namespace loom
