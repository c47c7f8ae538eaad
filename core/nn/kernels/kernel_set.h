#pragma once
// The innermost loops of attention, norms, rotary, SwiGLU and log-softmax on CPU. They are compiled once per
// instruction set (generic, AVX2, AVX-512) from one body and picked at start, so that a binary made anywhere is fast
// everywhere. Nothing here knows LibTorch: a file built with -mavx512f must not leave inline functions of other
// people's headers in the program. Every row (and every attention range) is computed alone, in an order of operations
// that its own size fixes.
#include <cstdint>

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
  Rows<T> dq, dk, dv;              // written by backward; dk and dv are added to
  int64_t heads = 1, kv_heads = 1, head_dim = 1;
  bool causal = false;
  T scale = 1;
  int64_t window = 0;
};

struct AttentionTask {
  int64_t q_begin = 0, q_rows = 0, k_begin = 0, k_rows = 0;
  int64_t kv_head = 0;
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

template <class T>
struct KernelSet {
  // Elements of scratch that a task needs.
  int64_t (*attention_scratch)(int64_t head_dim, int64_t k_rows, bool backward);
  void (*attention_forward)(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch);
  void (*attention_backward)(const AttentionArgs<T>& args, const AttentionTask& task, T* scratch);
  void (*norm_forward)(const NormArgs<T>& args, int64_t begin, int64_t end);
  void (*norm_backward)(const NormArgs<T>& args, int64_t begin, int64_t end);
  void (*rotary)(const RotaryArgs<T>& args, int64_t begin, int64_t end);
  // x holds [gate | up] of `width` each.
  void (*swiglu_forward)(Rows<const T> x, Rows<T> y, int64_t width, int64_t begin, int64_t end);
  void (*swiglu_backward)(Rows<const T> x, Rows<const T> dy, Rows<T> dx, int64_t width, int64_t begin, int64_t end);
  // Log-sum-exp of each row.
  void (*row_lse)(Rows<const T> x, T* lse, int64_t width, int64_t begin, int64_t end);
  // In place: x becomes grad * (onehot(target) - softmax(x)).
  void (*logprob_backward)(Rows<T> x, const T* lse, const int64_t* targets, const T* grad, int64_t width, int64_t begin,
                           int64_t end);
};

enum class Level { generic = 1, avx2, avx512 };

const char* level_name(Level level);
bool level_supported(Level level);
Level current_level();
void use_level(Level level);  // for tests; the best supported one is in use from the start

// The set in use.
template <class T>
const KernelSet<T>& kernel_set();
template <>
const KernelSet<float>& kernel_set<float>();
template <>
const KernelSet<double>& kernel_set<double>();

}  // namespace loom::kernels
