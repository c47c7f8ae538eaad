#pragma once
// Items in pieces on several ranks, and attention over them under whatever plan: shared by tests of split attention.
#include <ATen/ATen.h>

#include <numeric>

#include "core/comm/loopback.h"
#include "core/nn/context.h"
#include "core/step/placement.h"

namespace loom::test {

struct Heads {
  int64_t q = 1, kv = 1;
};

// Items of random lengths, whole or in random pieces on random ranks.
inline std::vector<StreamItem> random_items(const Philox& random, uint64_t& at, int world, int64_t rows_at_least) {
  std::vector<StreamItem> items;
  for (uint64_t i = 0; i < 4; ++i) {
    StreamItem item;
    item.key = {i + 1, 0, 0};
    const int64_t rows = rows_at_least + static_cast<int64_t>(random.below(9, at++));
    item.layout = whole_item(rows);
    int64_t begin = 0;
    std::vector<int> ranks(static_cast<size_t>(world));
    std::iota(ranks.begin(), ranks.end(), 0);
    while (begin < rows) {
      const int64_t left = rows - begin;
      const bool last = ranks.size() == 1 || random.below(3, at++) == 0;
      const int64_t n = last ? left : 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(left), at++));
      const size_t pick = random.below(ranks.size(), at++);
      item.pieces.push_back({ranks[pick], begin, n});
      ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(pick));
      begin += n;
    }
    items.push_back(std::move(item));
  }
  return items;
}

inline std::vector<StreamItem> on_one_rank(std::vector<StreamItem> items) {
  for (StreamItem& item : items) item.pieces = {{0, 0, item.layout.partitions.at("").rows()}};
  return items;
}

inline Tensor rows_here(const Tensor& all, const std::vector<StreamItem>& items, int rank) {
  std::vector<Tensor> rows{all.narrow(0, 0, 0)};
  for (const PlacedRows& run : placed_rows(items, "")) {
    if (run.rank == rank) rows.push_back(all.narrow(0, run.global, run.rows));
  }
  return at::cat(rows).detach().requires_grad_();
}

inline void put_rows(Tensor& all, const Tensor& rows, const std::vector<StreamItem>& items, int rank) {
  for (const PlacedRows& run : placed_rows(items, "")) {
    if (run.rank == rank) all.narrow(0, run.global, run.rows).copy_(rows.narrow(0, run.local, run.rows));
  }
}

// A context over partitions "" (queries) and "other" (keys).
class Ranked {
 public:
  Ranked(const std::vector<StreamItem>& items, const std::vector<StreamItem>& others, Communicator& comm,
         int tile_queries = 0) {
    UnitDecl unit;
    unit.name = "unit";
    unit.mixes = Mixes::attention;
    Declarer(declarations_).unit(unit);
    partitions_[""] = local_partitions(items, comm.rank()).at("");
    partitions_["other"] = local_partitions(others, comm.rank()).at("");
    state_.declarations = &declarations_;
    state_.partitions = &partitions_;
    state_.comm = &comm;
    state_.unit = 0;
    state_.counters = &counters;
    state_.tile_queries = tile_queries;
  }
  UnitContext context() { return UnitContext(state_); }
  ContextState& state() { return state_; }
  ServiceCounters counters;

 private:
  Declarations declarations_;
  Partitions partitions_;
  ContextState state_;
};

struct Problem {
  std::vector<StreamItem> items, others;
  Tensor q, k, v, weights;
  AttentionSpec spec;
  int tile_queries = 0;  // see plan_attention
};

struct Answer {
  Tensor out, dq, dk, dv;
};

inline Answer attend(const Problem& p, const std::vector<StreamItem>& items, const std::vector<StreamItem>& others,
                     Communicator& comm, ServiceCounters* counters) {
  Ranked ranked(items, others, comm, p.tile_queries);
  UnitContext ctx = ranked.context();
  const Tensor q = rows_here(p.q, items, comm.rank()), k = rows_here(p.k, others, comm.rank()),
               v = rows_here(p.v, others, comm.rank()), w = rows_here(p.weights, items, comm.rank());
  Attention a = ctx.attention(p.spec);
  a.query(q);
  a.key(k);
  a.value(v);
  Answer out;
  out.out = a.output();
  (out.out * w.detach()).sum().backward();
  out.dq = q.grad();
  out.dk = k.grad();
  out.dv = v.grad();
  if (counters != nullptr) *counters = ranked.counters;
  return out;
}

inline int64_t rows_in(const std::vector<StreamItem>& items) {
  int64_t n = 0;
  for (const StreamItem& item : items) n += item.layout.partitions.at("").rows();
  return n;
}

// Answers of one rank and of several, put together.
struct Compared {
  std::vector<Tensor> got, wanted;  // output, dq, dk, dv
  int64_t sent = 0, splits = 0;
};

inline Compared on_ranks(const Problem& p, int world) {
  const Answer one = attend(p, on_one_rank(p.items), on_one_rank(p.others), alone(), nullptr);
  Compared out;
  out.wanted = {one.out.detach(), one.dq, one.dk, one.dv};
  for (const Tensor& t : out.wanted) out.got.push_back(at::full_like(t, 7.0));
  std::vector<int64_t> sent(static_cast<size_t>(world)), splits(static_cast<size_t>(world));
  run_loopback(world, [&](Communicator& comm) {
    ServiceCounters counters;
    const Answer mine = attend(p, p.items, p.others, comm, &counters);
    sent[static_cast<size_t>(comm.rank())] = comm.bytes_sent();
    splits[static_cast<size_t>(comm.rank())] = counters.split_segments;
    put_rows(out.got[0], mine.out.detach(), p.items, comm.rank());
    if (mine.dq.defined()) put_rows(out.got[1], mine.dq, p.items, comm.rank());
    if (mine.dk.defined()) put_rows(out.got[2], mine.dk, p.others, comm.rank());
    if (mine.dv.defined()) put_rows(out.got[3], mine.dv, p.others, comm.rank());
  });
  out.sent = std::accumulate(sent.begin(), sent.end(), int64_t{0});
  out.splits = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  return out;
}

}  // namespace loom::test
