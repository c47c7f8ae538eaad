#pragma once
// How each component lies on the one set of ranks (design, idea 4), as far as a step plan needs to know. All layouts
// cover the same ranks; nothing is called "the" size of an axis.
#include <cstdint>
#include <map>
#include <string>

namespace loom {

struct ComponentLayout {
  int sp = 1;     // backbone: ranks per lane, which share a packed sequence. Encoder: most ranks that share one item
  int shard = 0;  // ranks that share one copy of the weights; divides the world; 0 = all, 1 = every rank has a copy
  // Attention of what several ranks share: 0 = by heads (Ulysses), 1 = ring, a > 1 = mesh of a chunks of queries,
  // -1 = the mesh that sends least.
  int tile = 0;

  bool operator==(const ComponentLayout&) const = default;
};

struct WorldLayout {
  int world = 1;
  ComponentLayout backbone;
  std::map<std::string, ComponentLayout> encoders, connectors;  // by modality; absent = the default

  int lanes() const { return world / backbone.sp; }
  ComponentLayout encoder(const std::string& modality) const;
  ComponentLayout connector(const std::string& modality) const;
  // Ranks that hold the same part of the weights of "encoders.image", "connectors.image" or "backbone".
  int copies(const std::string& component) const;
  bool operator==(const WorldLayout&) const = default;
};

}  // namespace loom
