// Meeting, disagreeing and losing each other, over sockets: what every surviving rank is told.
#include "core/comm/process_world.h"

#include <atomic>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"
#include "tests/core/comm/gloo_threads.h"
#include "tests/core/comm/values.h"

namespace loom {
namespace {

using test::message_of;
using test::run_gloo;
using test::words_of;

// A machine that stands still for seconds must not look like a peer that is lost.
WorldOptions calm() {
  WorldOptions options;
  options.arrival = options.timeout = 60;
  return options;
}

// For ranks that do not come.
WorldOptions hasty() {
  WorldOptions options = calm();
  options.arrival = 1;
  return options;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' in: " << text;
}

TEST(ProcessWorld, MessagesAreFoundByTheirTickets) {
  run_gloo(2, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<Pending> pendings;
    std::vector<Tensor> sent, got;
    for (int i = 0; i < 40; ++i) {
      sent.push_back(test::values_of(static_cast<uint64_t>(i), comm.rank(), 1 + i * i, at::kFloat));
      got.push_back(at::empty({1 + i * i}));
      pendings.push_back(comm.exchange("same name", {{peer, sent.back()}}, {{peer, got.back()}}));
    }
    for (size_t i = pendings.size(); i-- > 0;) pendings[i].wait();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(test::same_bits(got[i], test::values_of(i, peer, got[i].numel(), at::kFloat)));
    }
  });
}

TEST(ProcessWorld, ASendMayEndBeforeItsReceiverCame) {
  run_gloo(2, [](Communicator& comm) {
    const Tensor values = at::full({100000}, 3.0);
    if (comm.rank() == 0) {
      comm.exchange("one way", {{1, values}}, {}).wait();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const Tensor got = at::empty_like(values);
      comm.exchange("one way", {}, {{0, got}}).wait();
      EXPECT_TRUE(at::equal(got, values));
    }
  });
}

TEST(ProcessWorld, ARankThatFailsIsQuotedByAll) {
  const auto errors = run_gloo(3, calm(), [](Communicator& comm) {
    comm.barrier("all are connected", world_group(3));
    if (comm.rank() == 2) {
      comm.fail("the roof is leaking");
      throw UserError("the roof is leaking");
    }
    comm.barrier("backbone.head: gradients", world_group(3));
  });
  for (const int rank : {0, 1}) {
    const std::string words = words_of(errors[static_cast<size_t>(rank)]);
    expect_part(words, "rank 2 (");
    expect_part(words, "failed: the roof is leaking");
    expect_part(words, "in 'backbone.head: gradients'");
    expect_part(words, concat("this is rank ", rank, " ("));
  }
}

TEST(ProcessWorld, APeerThatAnswersNothingIsNamed) {
  WorldOptions options = calm();
  options.timeout = 1;
  std::atomic<int> told{0};
  const auto errors = run_gloo(3, options, [&](Communicator& comm) {
    if (comm.rank() == 1) {  // alive, but busy with something else until the others have given up
      for (int i = 0; told < 2 && i < 6000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    try {
      comm.barrier("encoders.image: weights", world_group(3));
    } catch (...) {
      ++told;
      throw;
    }
  });
  for (const int rank : {0, 2}) {
    const std::string words = words_of(errors[static_cast<size_t>(rank)]);
    expect_part(words, "no answer from rank 1 (");
    expect_part(words, "for 1 s in 'encoders.image: weights'");
  }
}

TEST(ProcessWorld, RanksThatDisagreeAreToldBothNames) {
  const auto errors = run_gloo(2, calm(), [](Communicator& comm) {
    comm.barrier(comm.rank() == 0 ? "backbone: weights" : "backbone: gradients", {0, 1});
  });
  for (const std::exception_ptr& error : errors) {
    const std::string words = words_of(error);
    expect_part(words, "backbone: weights");
    expect_part(words, "backbone: gradients");
    expect_part(words, "the ranks disagree about what comes next");
  }
}

TEST(ProcessWorld, RanksThatDisagreeAboutASizeAreTold) {
  const auto errors = run_gloo(2, calm(), [](Communicator& comm) {
    comm.all_reduce("values", {0, 1}, at::zeros({comm.rank() + 3}));
  });
  for (const std::exception_ptr& error : errors) {
    const std::string words = words_of(error);
    expect_part(words, "12");
    expect_part(words, "16");
    expect_part(words, "the ranks disagree about size or type");
  }
}

TEST(ProcessWorld, WhoDoesNotArriveIsNamed) {
  const int port = test::free_port();
  const std::string words = message_of<CommError>([&] { join_world(test::place_of(0, 3, port), hasty()); });
  expect_part(words, "2 of 3 ranks did not arrive");
  expect_part(words, "1, 2");
}

TEST(ProcessWorld, AnAddressWithoutAnAnswerIsNamed) {
  const int port = test::free_port();
  const std::string words = message_of<CommError>([&] { join_world(test::place_of(1, 2, port), hasty()); });
  expect_part(words, concat("127.0.0.1:", port));
  expect_part(words, "nobody answers");
}

TEST(ProcessWorld, APortThatIsTakenIsNamed) {
  const auto listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  const std::string words = message_of<UserError>([&] { join_world(test::place_of(0, 2, port), calm()); });
  expect_part(words, std::to_string(port));
  expect_part(words, "taken");
  ::close(listener);
}

TEST(ProcessWorld, WorldsOfUnlikeSizeAreRefused) {
  const int port = test::free_port();
  std::string words[2];
  std::thread other([&] { words[1] = message_of<UserError>([&] { join_world(test::place_of(1, 3, port), calm()); }); });
  words[0] = message_of<UserError>([&] { join_world(test::place_of(0, 2, port), calm()); });
  other.join();
  expect_part(words[0] + words[1], "was started as one of");
}

}  // namespace
}  // namespace loom
