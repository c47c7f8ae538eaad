#pragma once
// Row by row: norms, rotary, SwiGLU, log-softmax, sums over rows, rows of tables. A row is read from memory once per
// direction.
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/kernels/simd.h"

namespace loom::kernels {
namespace {

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

template <class T>
void norm_forward(const NormArgs<T>& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  const T inverse = T{1} / static_cast<T>(width);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.data + r * args.x.stride;
    T* y = args.y.data + r * args.y.stride;
    if (args.delta.data != nullptr) {
      const T* delta = args.delta.data + r * args.delta.stride;
      T* sum = args.sum.data + r * args.sum.stride;
      for_vectors<T>(
          width, [&](int64_t c, int64_t n) { store_n<T>(sum + c, load_n<T>(x + c, n) + load_n<T>(delta + c, n), n); });
      x = sum;
    }
    T mean = 0;
    if (args.center) {
      Vec<T> sum{};
      for_vectors<T>(width, [&](int64_t c, int64_t n) { sum += load_n<T>(x + c, n); });
      mean = sum_lanes<T>(sum) * inverse;
      args.mean[r] = mean;
    }
    Vec<T> squares{};
    int64_t c = 0;
    for (; c + kWidth<T> <= width; c += kWidth<T>) {
      const Vec<T> v = load<T>(x + c) - mean;
      squares += v * v;
    }
    T total = sum_lanes<T>(squares);
    for (; c < width; ++c) total += (x[c] - mean) * (x[c] - mean);
    const T scale = T{1} / square_root(total * inverse + args.eps);
    args.scale[r] = scale;
    for_vectors<T>(width, [&](int64_t i, int64_t n) {
      Vec<T> v = (load_n<T>(x + i, n) - mean) * scale * load_n<T>(args.weight + i, n);
      if (args.bias != nullptr) v += load_n<T>(args.bias + i, n);
      store_n<T>(y + i, v, n);
    });
  }
}

template <class T>
void norm_backward(const NormArgs<T>& args, int64_t begin, int64_t end) {
  const int64_t width = args.width;
  const T inverse = T{1} / static_cast<T>(width);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.data + r * args.x.stride;
    const T* dy = args.dy.data + r * args.dy.stride;
    T* dx = args.dx.data + r * args.dx.stride;
    const T* dsum = args.dsum.data != nullptr ? args.dsum.data + r * args.dsum.stride : nullptr;
    const T mean = args.center ? args.mean[r] : T{0}, scale = args.scale[r];
    Vec<T> sum{}, dot{};
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      const Vec<T> grad = load_n<T>(dy + c, n), normal = (load_n<T>(x + c, n) - mean) * scale;
      const Vec<T> inner = grad * load_n<T>(args.weight + c, n);
      sum += inner;
      dot += inner * normal;
      if (args.dweight != nullptr) store_n<T>(args.dweight + c, load_n<T>(args.dweight + c, n) + grad * normal, n);
      if (args.dbias != nullptr) store_n<T>(args.dbias + c, load_n<T>(args.dbias + c, n) + grad, n);
    });
    const T first = args.center ? sum_lanes<T>(sum) * inverse : T{0}, second = sum_lanes<T>(dot) * inverse;
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      const Vec<T> inner = load_n<T>(dy + c, n) * load_n<T>(args.weight + c, n);
      Vec<T> grad = (inner - first - (load_n<T>(x + c, n) - mean) * scale * second) * scale;
      if (dsum != nullptr) grad += load_n<T>(dsum + c, n);
      store_n<T>(dx + c, grad, n);
    });
  }
}

template <class T>
void rotary(const RotaryArgs<T>& args, int64_t begin, int64_t end) {
  const T sign = args.inverse ? T{-1} : T{1};
  for (int64_t r = begin; r < end; ++r) {
    const T* cosines = args.cosines + args.positions[r] * args.half;
    const T* sines = args.sines + args.positions[r] * args.half;
    for (int64_t h = 0; h < args.heads; ++h) {
      const T* x = args.x.data + r * args.x.stride + h * 2 * args.half;
      T* y = args.y.data + r * args.y.stride + h * 2 * args.half;
      for_vectors<T>(args.half, [&](int64_t j, int64_t n) {
        const Vec<T> a = load_n<T>(x + j, n), b = load_n<T>(x + args.half + j, n);
        const Vec<T> c = load_n<T>(cosines + j, n), s = load_n<T>(sines + j, n) * sign;
        store_n<T>(y + j, a * c - b * s, n);
        store_n<T>(y + args.half + j, b * c + a * s, n);
      });
    }
  }
}

template <class T>
inline Vec<T> sigmoid(const Vec<T>& x) {
  return T{1} / (T{1} + exponential<T>(-x));
}

template <class T>
void swiglu_forward(Rows<const T> x, Rows<T> y, int64_t width, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* gates = x.data + r * x.stride;
    T* out = y.data + r * y.stride;
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      const Vec<T> gate = load_n<T>(gates + c, n);
      store_n<T>(out + c, gate * sigmoid<T>(gate) * load_n<T>(gates + width + c, n), n);
    });
  }
}

template <class T>
void swiglu_backward(Rows<const T> x, Rows<const T> dy, Rows<T> dx, Rows<T> again, int64_t width, int64_t begin,
                     int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* gates = x.data + r * x.stride;
    const T* grads = dy.data + r * dy.stride;
    T* out = dx.data + r * dx.stride;
    T* value = again.data != nullptr ? again.data + r * again.stride : nullptr;
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      const Vec<T> gate = load_n<T>(gates + c, n), up = load_n<T>(gates + width + c, n), grad = load_n<T>(grads + c, n);
      const Vec<T> s = sigmoid<T>(gate), silu = gate * s;
      store_n<T>(out + c, grad * up * s * (T{1} + gate * (T{1} - s)), n);
      store_n<T>(out + width + c, grad * silu, n);
      if (value != nullptr) store_n<T>(value + c, silu * up, n);
    });
  }
}

// A tile of columns at a time stays in the first cache; blocks of rows are summed first, for accuracy.
template <class T>
void column_sums(Rows<const T> x, int64_t rows, T* out, bool fresh, int64_t begin, int64_t end) {
  constexpr int64_t kColumns = 256, kRows = 64;
  T block[kColumns], total[kColumns];
  for (int64_t c = begin; c < end; c += kColumns) {
    const int64_t width = end - c < kColumns ? end - c : kColumns;
    for (int64_t i = 0; i < width; ++i) total[i] = fresh ? T{0} : out[c + i];
    for (int64_t first = 0; first < rows; first += kRows) {
      const int64_t last = first + kRows < rows ? first + kRows : rows;
      for (int64_t i = 0; i < width; ++i) block[i] = 0;
      for (int64_t r = first; r < last; ++r) {
        const T* row = x.data + r * x.stride + c;
        for_vectors<T>(width, [&](int64_t i, int64_t n) {
          store_n<T>(block + i, load_n<T>(block + i, n) + load_n<T>(row + i, n), n);
        });
      }
      for (int64_t i = 0; i < width; ++i) total[i] += block[i];
    }
    for (int64_t i = 0; i < width; ++i) out[c + i] = total[i];
  }
}

template <class T>
void gather_rows(Rows<const T> table, const int64_t* ids, Rows<const T> x, Rows<T> y, int64_t width, int64_t begin,
                 int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T* from = table.data + ids[r] * table.stride;
    const T* more = x.data != nullptr ? x.data + r * x.stride : nullptr;
    T* to = y.data + r * y.stride;
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      Vec<T> v = load_n<T>(from + c, n);
      if (more != nullptr) v += load_n<T>(more + c, n);
      store_n<T>(to + c, v, n);
    });
  }
}

template <class T>
void scatter_rows(Rows<const T> x, const int64_t* ids, int64_t rows, Rows<T> table, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x.data + r * x.stride + begin;
    T* to = table.data + ids[r] * table.stride + begin;
    for_vectors<T>(end - begin,
                   [&](int64_t c, int64_t n) { store_n<T>(to + c, load_n<T>(to + c, n) + load_n<T>(from + c, n), n); });
  }
}

inline float row_logarithm(float x) { return __builtin_logf(x); }
inline double row_logarithm(double x) { return __builtin_log(x); }

template <class T>
void row_lse(Rows<const T> x, T* lse, int64_t width, int64_t begin, int64_t end) {
  constexpr int64_t kW = kWidth<T>;
  const T lowest = static_cast<T>(-__builtin_inf());
  for (int64_t r = begin; r < end; ++r) {
    const T* row = x.data + r * x.stride;
    Vec<T> top = broadcast<T>(lowest);
    int64_t c = 0;
    for (; c + kW <= width; c += kW) top = larger<T>(load<T>(row + c), top);
    T largest = largest_lane<T>(top);
    for (; c < width; ++c) largest = row[c] > largest ? row[c] : largest;
    Vec<T> sum{};
    T rest = 0;
    for_vectors<T>(width, [&](int64_t i, int64_t n) {
      const Vec<T> p = exponential<T>(load_n<T>(row + i, n) - largest);
      if (n == kW) {
        sum += p;
      } else {
        for (int64_t j = 0; j < n; ++j) rest += p[j];
      }
    });
    lse[r] = largest + row_logarithm(sum_lanes<T>(sum) + rest);
  }
}

template <class T>
void logprob_backward(Rows<T> x, const T* lse, const int64_t* targets, const T* grad, int64_t width, int64_t begin,
                      int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    T* row = x.data + r * x.stride;
    const T lse_r = lse[r], factor = -grad[r];
    for_vectors<T>(width, [&](int64_t c, int64_t n) {
      store_n<T>(row + c, exponential<T>(load_n<T>(row + c, n) - lse_r) * factor, n);
    });
    row[targets[r]] += grad[r];
  }
}

}  // namespace
}  // namespace loom::kernels
