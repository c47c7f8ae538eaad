// The executor. Everything for one peer, from all moves, travels in one message; a message that is one contiguous patch
// is not copied at all. Many small patches of rows become one indexed copy: a call per row would cost more than the
// rows. The adjoint is the same walk with reading and writing exchanged, and writing adds, in ascending order of ranks.
#include "core/reshard/redistribute.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/base/upload.h"
#include "core/comm/communicator.h"

namespace loom {
namespace {

enum class Write { copy = 1, add };

// Patches of one local memory, whose elements are `inner` numbers wide.
struct Piece {
  std::vector<const Patch*> patches;
  Tensor memory;  // flat
  int64_t inner = 1;
  int64_t elements = 0;
};

// All pieces that one peer gets or sends.
struct Parcel {
  int peer = 0;
  std::vector<Piece> pieces;
  int64_t numbers = 0;
  Tensor buffer;
  bool direct = false;  // the buffer is the memory itself
};

bool contiguous(const Patch& patch) {
  int64_t next = 1;
  for (size_t d = patch.size.size(); d-- > 0;) {
    if (patch.size[d] != 1 && patch.stride[d] != next) return false;
    next *= patch.size[d];
  }
  return true;
}

void check_inside(const Patch& patch, const Tensor& memory, int64_t inner) {
  int64_t last = patch.offset;
  for (size_t d = 0; d < patch.size.size(); ++d) last += (patch.size[d] - 1) * patch.stride[d];
  LOOM_CHECK(memory.defined() && (last + 1) * inner <= memory.numel(), "a patch that ends at element ", last,
             " of width ", inner, " in a memory of ", memory.defined() ? memory.numel() : 0, " numbers");
}

Piece piece_of(const std::vector<Patch>& patches, const Tensor& memory, int64_t inner) {
  Piece out{{}, memory, inner, 0};
  out.patches.reserve(patches.size());
  for (const Patch& patch : patches) {
    check_inside(patch, memory, inner);
    out.patches.push_back(&patch);
    out.elements += patch.numel();
  }
  return out;
}

Tensor flat(const Tensor& memory) {
  if (!memory.defined()) return memory;
  LOOM_CHECK(memory.is_contiguous(), "a memory of ", memory.numel(), " numbers is not contiguous");
  return memory.view({memory.numel()});
}

// The patch as a view.
Tensor view_of(const Tensor& memory, const Patch& patch, int64_t inner) {
  if (contiguous(patch)) return memory.narrow(0, patch.offset * inner, patch.numel() * inner);
  std::vector<int64_t> size = patch.size, stride = patch.stride;
  for (int64_t& step : stride) step *= inner;
  size.push_back(inner);
  stride.push_back(1);
  return memory.as_strided(size, stride, memory.storage_offset() + patch.offset * inner);
}

bool many_rows(const Piece& piece) {
  constexpr int64_t kFewRows = 16, kManyPatches = 8;
  const auto patches = static_cast<int64_t>(piece.patches.size());
  return patches >= kManyPatches && piece.elements < kFewRows * patches && piece.patches.front()->size.size() == 1;
}

Tensor rows_of(const Piece& piece) {
  return piece.memory.narrow(0, 0, piece.memory.numel() / piece.inner * piece.inner).view({-1, piece.inner});
}

Tensor index_of(const Piece& piece) {
  const Tensor out = at::empty({piece.elements}, at::kLong);
  int64_t* at = out.mutable_data_ptr<int64_t>();
  for (const Patch* patch : piece.patches) {
    for (int64_t i = 0; i < patch->size[0]; ++i) *at++ = patch->offset + i * patch->stride[0];
  }
  return upload(out, piece.memory.device());
}

void write_rows(const Piece& piece, const Tensor& rows, Write write) {
  if (write == Write::copy) {
    rows_of(piece).index_copy_(0, index_of(piece), rows);
  } else {
    rows_of(piece).index_add_(0, index_of(piece), rows);
  }
}

void write_view(const Tensor& to, const Tensor& from, Write write) {
  const Tensor shaped = from.sizes() == to.sizes() ? from : from.reshape(to.sizes());
  if (write == Write::copy) {
    to.copy_(shaped);
  } else {
    to.add_(shaped);
  }
}

// Patches -> consecutive numbers.
void read(const Piece& piece, const Tensor& out) {
  if (many_rows(piece)) {
    Tensor rows = out.view({piece.elements, piece.inner});
    at::index_select_out(rows, rows_of(piece), 0, index_of(piece));
    return;
  }
  int64_t at = 0;
  for (const Patch* patch : piece.patches) {
    const Tensor view = view_of(piece.memory, *patch, piece.inner);
    out.narrow(0, at, view.numel()).view(view.sizes()).copy_(view);
    at += view.numel();
  }
}

// Consecutive numbers -> patches.
void write(const Piece& piece, const Tensor& in, Write how) {
  if (many_rows(piece)) {
    write_rows(piece, in.view({piece.elements, piece.inner}), how);
    return;
  }
  int64_t at = 0;
  for (const Patch* patch : piece.patches) {
    const Tensor view = view_of(piece.memory, *patch, piece.inner);
    write_view(view, in.narrow(0, at, view.numel()), how);
    at += view.numel();
  }
}

// Within this rank: first -> second, or back.
void move_local(const Route& route, const Tensor& source, const Tensor& destination, int64_t inner, bool adjoint) {
  if (route.local.empty()) return;
  const Write how = adjoint ? Write::add : Write::copy;
  Piece from{{}, source, inner, 0}, to{{}, destination, inner, 0};
  for (const auto& [first, second] : route.local) {
    check_inside(first, source, inner);
    check_inside(second, destination, inner);
    from.patches.push_back(&first);
    to.patches.push_back(&second);
    from.elements += first.numel();
  }
  to.elements = from.elements;
  const Piece &reads = adjoint ? to : from, &writes = adjoint ? from : to;
  if (many_rows(reads)) {
    write_rows(writes, rows_of(reads).index_select(0, index_of(reads)), how);
    return;
  }
  for (size_t i = 0; i < reads.patches.size(); ++i) {
    write_view(view_of(writes.memory, *writes.patches[i], inner), view_of(reads.memory, *reads.patches[i], inner), how);
  }
}

// One side of all moves, by peer.
class Parcels {
 public:
  void add(const std::vector<PeerPatches>& peers, const Tensor& memory, int64_t inner) {
    for (const PeerPatches& peer : peers) {
      if (peer.patches.empty()) continue;
      Parcel& parcel = by_peer_[peer.peer];
      parcel.peer = peer.peer;
      parcel.pieces.push_back(piece_of(peer.patches, memory, inner));
      parcel.numbers += parcel.pieces.back().elements * inner;
    }
  }

  // Buffers are slices of one allocation, or with `direct` the memory itself where that is one contiguous patch.
  std::vector<Message> buffers(bool direct) {
    int64_t total = 0;
    for (auto& [peer, parcel] : by_peer_) {
      const Piece& first = parcel.pieces.front();
      parcel.direct = direct && parcel.pieces.size() == 1 && first.patches.size() == 1 && contiguous(*first.patches[0]);
      if (parcel.direct) parcel.buffer = view_of(first.memory, *first.patches[0], first.inner);
      if (!parcel.direct) total += parcel.numbers;
    }
    Tensor all;
    int64_t at = 0;
    std::vector<Message> out;
    for (auto& [peer, parcel] : by_peer_) {
      if (!parcel.direct) {
        if (!all.defined()) all = at::empty({total}, parcel.pieces.front().memory.options());
        parcel.buffer = all.narrow(0, at, parcel.numbers);
        at += parcel.numbers;
      }
      out.push_back({peer, parcel.buffer});
    }
    return out;
  }

  void pack() const {
    for (const auto& [peer, parcel] : by_peer_) {
      int64_t at = 0;
      for (const Piece& piece : parcel.pieces) {
        if (!parcel.direct) read(piece, parcel.buffer.narrow(0, at, piece.elements * piece.inner));
        at += piece.elements * piece.inner;
      }
    }
  }

  static void unpack(const Parcel& parcel, Write how) {
    if (parcel.direct) return;
    int64_t at = 0;
    for (const Piece& piece : parcel.pieces) {
      write(piece, parcel.buffer.narrow(0, at, piece.elements * piece.inner), how);
      at += piece.elements * piece.inner;
    }
  }

  bool empty() const { return by_peer_.empty(); }
  const std::map<int, Parcel>& by_peer() const { return by_peer_; }

 private:
  std::map<int, Parcel> by_peer_;
};

// Flat memories, of one dtype.
std::vector<Move> flattened(std::string_view what, const std::vector<Move>& moves) {
  std::vector<Move> out = moves;
  const Tensor* first = nullptr;
  for (Move& move : out) {
    LOOM_CHECK(move.route != nullptr && move.inner > 0, what, ": a move without a route, or of width ", move.inner);
    for (Tensor* memory : {&move.source, &move.destination}) {
      *memory = flat(*memory);
      if (!memory->defined()) continue;
      if (first == nullptr) first = memory;
      LOOM_CHECK(memory->scalar_type() == first->scalar_type(), what, ": moves of ", first->scalar_type(), " and of ",
                 memory->scalar_type());
    }
  }
  return out;
}

}  // namespace

struct Redistribution::State {
  std::string what;
  std::vector<Move> moves;
  Parcels outgoing, incoming;
  Pending pending;
  bool adjoint = false;
  int rank = 0;

  void add_arrived() const;
};

Redistribution::Redistribution(Communicator& comm, std::string_view what, const std::vector<Move>& moves,
                               Direction direction)
    : state_(std::make_unique<State>()) {
  const c10::NoGradGuard no_grad;
  State& s = *state_;
  s.what = what;
  s.moves = flattened(what, moves);
  s.adjoint = direction == Direction::adjoint;
  s.rank = comm.rank();
  for (const Move& move : s.moves) {
    s.outgoing.add(s.adjoint ? move.route->receives : move.route->sends, s.adjoint ? move.destination : move.source,
                   move.inner);
    s.incoming.add(s.adjoint ? move.route->sends : move.route->receives, s.adjoint ? move.source : move.destination,
                   move.inner);
  }
  if (!s.outgoing.empty() || !s.incoming.empty()) {
    // What arrives is added in the adjoint, so it cannot arrive in place.
    const std::vector<Message> sends = s.outgoing.buffers(true), receives = s.incoming.buffers(!s.adjoint);
    s.outgoing.pack();
    s.pending = comm.exchange(what, sends, receives);
  }
  if (s.adjoint) return;
  for (const Move& move : s.moves) move_local(*move.route, move.source, move.destination, move.inner, false);
}

Redistribution::Redistribution(Redistribution&&) noexcept = default;
Redistribution& Redistribution::operator=(Redistribution&&) noexcept = default;
Redistribution::~Redistribution() = default;

// In ascending order of ranks, this one among them.
void Redistribution::State::add_arrived() const {
  const bool dropped = fault(Fault::bridge_keeps_local) && what.find("bridge") != std::string::npos;
  const auto add_parcels = [&](bool before_local) {
    for (const auto& [peer, parcel] : incoming.by_peer()) {
      if ((peer < rank) == before_local && !dropped) Parcels::unpack(parcel, Write::add);
    }
  };
  add_parcels(true);
  for (const Move& move : moves) move_local(*move.route, move.source, move.destination, move.inner, true);
  add_parcels(false);
}

void Redistribution::finish() {
  const c10::NoGradGuard no_grad;
  state_->pending.wait();
  if (state_->adjoint) {
    state_->add_arrived();
  } else {
    for (const auto& [peer, parcel] : state_->incoming.by_peer()) Parcels::unpack(parcel, Write::copy);
  }
  state_ = nullptr;
}

void redistribute(Communicator& comm, std::string_view what, const std::vector<Move>& moves) {
  Redistribution(comm, what, moves).finish();
}

void redistribute_adjoint(Communicator& comm, std::string_view what, const std::vector<Move>& moves) {
  Redistribution(comm, what, moves, Direction::adjoint).finish();
}

}  // namespace loom
