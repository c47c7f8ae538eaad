#pragma once
// The innermost loops of products, attention, norms, rotary, SwiGLU and log-softmax on CPU. They are compiled once per
// instruction set (generic, AVX2, AVX-512) from one body and picked at start, so that a binary made anywhere is fast
// everywhere. Nothing here knows LibTorch: a file built with -mavx512f must not leave inline functions of other
// people's headers in the program. Every row (and every attention range) is computed alone, in an order of operations
// that its own size fixes.
#include <cstdint>

#include "core/base/instruction_set.h"

namespace loom::kernels {

// One matrix of rows; `stride` elements apart.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;
};

template <class T>
struct AttentionArgs {
  Rows<const T> q, k, v;
  Rows<T> out, lse;                // written by forward
  Rows<const T> dout, done, dlse;  // read by backward: gradient, output and log-sum-exp of the forward
  Rows<T> dq, dk, dv;              // written by backward
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = false;
  T scale = 1;
  int64_t window = 0;
};

// Of one range and key/value head. Forward: rows [first, last) of the matrix whose row i * group + h is query row i of
// head h of the group. Backward: the block of keys that begins at `first`, a multiple of AttentionSizes::keys.
struct AttentionTask {
  int64_t q_begin = 0, q_rows = 0, k_begin = 0, k_rows = 0;
  int64_t kv_head = 0;
  int64_t first = 0, last = 0;
  int64_t later = 0;                // see AttentionRange
  bool adds = false;                // dk and dv are added to
  const int64_t* before = nullptr;  // progress of the block before, which another thread may work on
  int64_t* done = nullptr;          // own progress
};

// By head width alone.
struct AttentionSizes {
  int64_t keys = 0;                   // of a block
  int64_t rows = 0, chunk = 0;        // a forward task begins at a multiple of `rows` and has at most `chunk`
  int64_t forward = 0, backward = 0;  // elements of scratch, aligned to 64 bytes
};

// Root-mean-square norm, or layer norm when `center`; bias may be null.
template <class T>
struct NormArgs {
  Rows<const T> x, dy;
  Rows<T> y, dx;
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* mean = nullptr;     // [rows]; of layer norm
  T* scale = nullptr;    // [rows]; 1 / deviation
  T* dweight = nullptr;  // [width]; added to
  T* dbias = nullptr;
  int64_t width = 0;
  bool center = false;
  T eps = 0;
  Rows<const T> delta{};  // when there is one, x + delta is written to `sum` and normed
  Rows<T> sum{};
  Rows<const T> dsum{};  // when there is one, added to dx
};

// Rotates pairs (j, j + half) of every head of a row by the angle of its position.
template <class T>
struct RotaryArgs {
  Rows<const T> x;
  Rows<T> y;
  const int64_t* positions = nullptr;
  const T* cosines = nullptr;  // [positions, half]
  const T* sines = nullptr;
  int64_t heads = 1, half = 1;
  bool inverse = false;
};

// A matrix read anywhere: rows or columns may be dense.
template <class T>
struct Strided {
  const T* data = nullptr;
  int64_t row_step = 0, column_step = 0;
};

// out [m, n] = a [m, k] b [k, n] + start; start without data is zero, it may be out.
template <class T>
struct MatmulArgs {
  Strided<T> a, b;
  Rows<T> out;
  Rows<const T> start;
  int64_t m = 0, n = 0, k = 0;
};

template <class T>
struct KernelSet {
  AttentionSizes (*attention_sizes)(int64_t head_dim);
  void (*attention_forward)(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch);
  void (*attention_backward)(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch);
  void (*norm_forward)(const NormArgs<T>& args, int64_t begin, int64_t end);
  void (*norm_backward)(const NormArgs<T>& args, int64_t begin, int64_t end);
  void (*rotary)(const RotaryArgs<T>& args, int64_t begin, int64_t end);
  // x holds [gate | up] of `width` each.
  void (*swiglu_forward)(Rows<const T> x, Rows<T> y, int64_t width, int64_t begin, int64_t end);
  // Also makes the forward's value again when `again` is not empty; it may be dy.
  void (*swiglu_backward)(Rows<const T> x, Rows<const T> dy, Rows<T> dx, Rows<T> again, int64_t width, int64_t begin,
                          int64_t end);
  // Log-sum-exp of each row.
  void (*row_lse)(Rows<const T> x, T* lse, int64_t width, int64_t begin, int64_t end);
  // In place: x becomes grad * (onehot(target) - softmax(x)).
  void (*logprob_backward)(Rows<T> x, const T* lse, const int64_t* targets, const T* grad, int64_t width, int64_t begin,
                           int64_t end);
  void (*gelu_forward)(Rows<const T> x, Rows<T> y, bool tanh, int64_t width, int64_t begin, int64_t end);
  void (*gelu_backward)(Rows<const T> x, Rows<const T> dy, Rows<T> dx, Rows<T> again, bool tanh, int64_t width,
                        int64_t begin, int64_t end);
  // Sums of columns [begin, end) over all rows, in blocks of rows; added to what `out` holds unless it is fresh.
  void (*column_sums)(Rows<const T> x, int64_t rows, T* out, bool fresh, int64_t begin, int64_t end);
  // y[r] = table[ids[r]] (+ x[r], when there is an x).
  void (*gather_rows)(Rows<const T> table, const int64_t* ids, Rows<const T> x, Rows<T> y, int64_t width, int64_t begin,
                      int64_t end);
  // table[ids[r]] += x[r] in the order of rows, for columns [begin, end).
  void (*scatter_rows)(Rows<const T> x, const int64_t* ids, int64_t rows, Rows<T> table, int64_t begin, int64_t end);
  // One thread's product and the elements of scratch (aligned to 64 bytes) that it needs. Tiles are multiples of
  // these rows and columns.
  int64_t matmul_rows, matmul_columns;
  int64_t (*matmul_scratch)(int64_t m, int64_t n, int64_t k);
  void (*matmul)(const MatmulArgs<T>& args, T* scratch);
  // row_lse, the targets' logits and, in place, logprob_backward for gradients of one.
  void (*logprob_both)(Rows<T> x, T* lse, T* picked, const int64_t* targets, int64_t width, int64_t begin, int64_t end);
};

using Level = InstructionSet;

const char* level_name(Level level);
Level current_level();
void use_level(Level level);  // for tests; the best supported one is in use from the start

// On this processor LibTorch's own matrix product is at least as fast: Intel's library on Intel's processors, and
// whatever was made for an architecture that has no vectors of its own here.
bool library_products_are_faster();

// The set in use.
template <class T>
const KernelSet<T>& kernel_set();
template <>
const KernelSet<float>& kernel_set<float>();
template <>
const KernelSet<double>& kernel_set<double>();

}  // namespace loom::kernels
