#pragma once
// Memory of large tensors, kept when they are freed. A step asks for the sizes that the last one gave back, and a page
// that is new to the process must be cleared first, which costs more than most passes over it. One range of addresses
// is reserved (addresses cost nothing); blocks are cut from it by best fit and joined with free neighbours, so that
// what is held follows the bytes in use, not every size that was ever asked for.
#include <cstddef>
#include <cstdint>
#include <memory>

namespace loom {

struct PoolUse {
  int64_t in_use = 0;    // bytes of blocks handed out, in whole pages
  int64_t held = 0;      // the same, and what is free and still has memory
  int64_t unbacked = 0;  // bytes handed out so far that had no memory yet: pages that had to be cleared
};

// A piece of the range; whoever allocates keeps it to free it.
struct PoolBlock {
  char* at = nullptr;  // a page border
  size_t size = 0;
  bool free = false;
  bool backed = false;                            // free: has memory
  PoolBlock *before = nullptr, *after = nullptr;  // neighbours by address
};

class MemoryPool {
 public:
  // Over `range` bytes of addresses. What is held stays below the largest use of this step or the last one, a sixteenth
  // of it and `slack` bytes.
  explicit MemoryPool(size_t range, size_t slack = size_t{16} << 20);
  ~MemoryPool();  // all blocks are gone with it
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  PoolBlock* allocate(size_t bytes);  // null when the range has no such piece
  void free(PoolBlock* block);        // from any thread
  void end_step();                    // a step begins: the largest use is counted anew
  void release_unused();              // gives back all that is free
  PoolUse use() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace loom
