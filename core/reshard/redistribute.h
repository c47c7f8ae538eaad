#pragma once
// One redistribute (design, idea 5). Who owns which boxes of a global tensor is a Layout; source boxes ∩ destination
// boxes are transfers (source rank, destination rank, slice); a Route is one rank's view of them; the executor moves
// bytes along routes, and its adjoint moves gradients back and adds. The planner is pure and equal on every rank.
//
// An element of a Layout may stand for `inner` numbers (a row's columns, a head's width), so a route is planned once
// and used for streams of any width.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/tensor.h"
#include "core/mesh/box.h"

namespace loom {

class Communicator;

// A box, and where it lies in its rank's local memory: element (i, j, ...) of the box is at offset + i * stride[0] +
// ...
struct OwnedBox {
  int rank = 0;
  Box box;
  int64_t offset = 0;
  std::vector<int64_t> stride;
};

struct Layout {
  std::vector<int64_t> shape;  // of the global tensor
  std::vector<OwnedBox> boxes;
};

// A strided part of local memory, in elements.
struct Patch {
  int64_t offset = 0;
  std::vector<int64_t> size, stride;
  int64_t numel() const;
};

struct Transfer {
  int source = 0, destination = 0;
  Patch from, to;  // equal sizes
};

// Every destination element comes from one owner: the destination rank itself when it is one, else the first in the
// source's list. InternalError when an element of the destination has no owner.
std::vector<Transfer> plan_transfers(const Layout& source, const Layout& destination);

struct PeerPatches {
  int peer = 0;
  std::vector<Patch> patches;
  int64_t numel() const;
};

// What one rank sends, receives and copies; patches in the order of the plan, peers ascending.
struct Route {
  std::vector<std::pair<Patch, Patch>> local;  // (source, destination)
  std::vector<PeerPatches> sends, receives;
  bool remote() const { return !sends.empty() || !receives.empty(); }
  int64_t sent() const;  // elements that leave this rank
};

Route route_of(const std::vector<Transfer>& transfers, int rank);
// Appends another route whose local memories begin at these offsets of this one's.
void append(Route& route, const Route& more, int64_t source_offset, int64_t destination_offset);

// `source` and `destination` are the contiguous local memories that patches speak of.
struct Move {
  const Route* route = nullptr;
  Tensor source, destination;
  int64_t inner = 1;
};

enum class Direction { forward = 1, adjoint };

// Moves all at once, one message per peer, which are on their way when the constructor returns. Elements of a
// destination that no patch names stay as they are. Backwards it is the adjoint: every move's `destination` is read,
// and added to `source` when it is finished. Routes and memories must live, and what is read stay as it is, until
// finish() returned.
class Redistribution {
 public:
  Redistribution(Communicator& comm, std::string_view what, const std::vector<Move>& moves,
                 Direction direction = Direction::forward);
  Redistribution(Redistribution&&) noexcept;
  Redistribution& operator=(Redistribution&&) noexcept;
  ~Redistribution();
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Starts and finishes.
void redistribute(Communicator& comm, std::string_view what, const std::vector<Move>& moves);
void redistribute_adjoint(Communicator& comm, std::string_view what, const std::vector<Move>& moves);

// Rows [global, global + rows) of a stream lie at rows [local, local + rows) of a rank's tensor.
struct RowRun {
  int rank = 0;
  int64_t global = 0, local = 0, rows = 0;
};

// A layout of rows; elements are rows (inner = the width).
Layout row_layout(int64_t rows, const std::vector<RowRun>& runs);

}  // namespace loom
