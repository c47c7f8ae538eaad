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

// Where a connector's rows lie: with the encoder's, or with the backbone's slots, which is possible unless a unit of it
// mixes whole items.
enum class ConnectorSide { fewer_bytes = 1, encoder, backbone };

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
  // Encoder: microbatches of the backbone that one pass serves (a macro batch). Its items are balanced together, its
  // weights gathered once, and its backward follows the last of them; 0 = all of a step.
  int macro = 1;
  // Encoder: most rows of one item on one rank; longer ones are divided even if that evens nothing out. 0 = any number.
  int64_t most_rows = 0;
  bool ahead = false;  // encoder: a pass runs one microbatch early, so that embeddings travel behind the backbone
  ConnectorSide side = ConnectorSide::fewer_bytes;  // connector: see there

  bool operator==(const ComponentLayout&) const = default;
};

// How encoders' items are spread over ranks.
struct Balance {
  static constexpr int kMostRanks = 256;
  int group = 0;      // neighbouring ranks over which items of a microbatch are spread; divides the world; 0 = all of
                      // them, in groups of at most kMostRanks
  bool move = true;   // a whole item may be encoded elsewhere than where its embeddings are wanted
  bool split = true;  // a long one may be divided, over up to ComponentLayout::sp ranks
  bool pack = true;   // samples are dealt to lanes by cost, not in turn

  bool operator==(const Balance&) const = default;
};
// The ranks of a group.
int balance_group(const Balance& balance, int world);

// How embeddings reach the backbone.
enum class BridgePath {
  exact = 1,   // what differs, from rank to rank
  symmetric,   // equal parts for every rank of a group, summed: every link carries the same
  by_traffic,  // symmetric where the busiest rank of the exact path has at least BridgeChoice::threshold of its bytes
};
struct BridgeChoice {
  BridgePath path = BridgePath::exact;
  double threshold = 1;

  bool operator==(const BridgeChoice&) const = default;
};

struct WorldLayout {
  int world = 1;
  Balance balance;
  BridgeChoice bridge;
  ComponentLayout backbone;
  std::map<std::string, ComponentLayout> encoders, connectors;  // by modality; absent = the default

  int lane_ranks() const { return backbone.sp * backbone.tp; }
  int lanes() const { return world / lane_ranks(); }
  ComponentLayout encoder(const std::string& modality) const;
  ComponentLayout connector(const std::string& modality) const;
  bool operator==(const WorldLayout&) const = default;
};

}  // namespace loom
