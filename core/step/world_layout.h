#pragma once
// How each component lies on the one set of ranks (design, idea 4), as far as a step plan needs to know. All layouts
// cover the same ranks; nothing is called "the" size of an axis.
#include <cstdint>
#include <map>
#include <string>

namespace loom {

constexpr int kByHeads = 0;        // Ulysses
constexpr int kLeastTraffic = -1;  // the tiles that send least
constexpr int kLeastTime = -2;     // those that take least, by times that a run measures when it starts

struct ComponentLayout {
  // Backbone: ranks (tensor groups, with tp) of a lane, which share a packed sequence. Encoder: most ranks that share
  // one item.
  int sp = 1;
  // Ranks that share one copy of the weights (with tp, of a rank's part of them); divides the world (over tp); 0 = all,
  // 1 = every rank has a copy.
  int shard = 0;
  // Attention of what several ranks share: kByHeads, or by tiles of this many chunks of queries (1 = ring, more =
  // mesh).
  int tile_queries = kByHeads;
  int tp = 1;  // neighbouring ranks that share its layers

  bool operator==(const ComponentLayout&) const = default;
};

// How encoders' items are spread over ranks.
struct Balance {
  static constexpr int kMostRanks = 256;
  int group = 0;      // neighbouring ranks over which items of a microbatch are spread; divides the world; 0 = all of
                      // them, in groups of at most kMostRanks
  bool move = true;   // a whole item may be encoded elsewhere than where its embeddings are wanted
  bool split = true;  // a long one may be divided, over up to ComponentLayout::sp ranks

  bool operator==(const Balance&) const = default;
};
// The ranks of a group.
int balance_group(const Balance& balance, int world);

struct WorldLayout {
  int world = 1;
  Balance balance;
  ComponentLayout backbone;
  std::map<std::string, ComponentLayout> encoders, connectors;  // by modality; absent = the default

  int lane_ranks() const { return backbone.sp * backbone.tp; }
  int lanes() const { return world / lane_ranks(); }
  ComponentLayout encoder(const std::string& modality) const;
  ComponentLayout connector(const std::string& modality) const;
  bool operator==(const WorldLayout&) const = default;
};

}  // namespace loom
