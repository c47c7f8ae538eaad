// The result is cut into tiles, about as many as threads and none so large that it leaves the last-level cache between
// two slices of k; every tile is packed and computed by one thread, so threads wait for each other only at the end.
// Packing is repeated per tile: a few operations per number against hundreds.
#include "core/nn/ops/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <string_view>

#include "core/base/error.h"
#include "core/base/parallel.h"
#include "core/nn/flops.h"
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/ops/pieces.h"

namespace loom {
namespace {

constexpr int64_t kLargestTile = 1024;       // rows and columns
constexpr double kThreadOperations = 1.5e6;  // fewer are not worth waking a thread
constexpr double kPackedCost = 12;           // packing a number, in multiplications of the inner loop

Products from_environment() {
  const char* value = std::getenv("OMNILOOM_MATMUL");
  if (value == nullptr) return kernels::library_products_are_faster() ? Products::library : Products::own;
  const std::string_view text = value;
  LOOM_CHECK_USER(text == "own" || text == "library", "OMNILOOM_MATMUL: expected own or library, found '", text, "'");
  return text == "own" ? Products::own : Products::library;
}

std::atomic<Products>& in_use() {
  static std::atomic<Products> products{from_environment()};
  return products;
}

bool computes(const Tensor& out) {
  return (out.scalar_type() == at::kFloat || out.scalar_type() == at::kDouble) && backend_of(out) == Backend::cpu &&
         products_in_use() == Products::own;
}

// Packed panels of this thread, kept for the next product: at most about 2.5 MB.
void* scratch(size_t bytes) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    memory.reset(std::aligned_alloc(64, rounded));
    if (memory == nullptr) throw std::bad_alloc();
    size = rounded;
  }
  return memory.get();
}

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

struct Grid {
  int64_t rows = 1, columns = 1;            // of a tile
  int64_t tile_rows = 1, tile_columns = 1;  // how many
  int64_t tiles() const { return tile_rows * tile_columns; }
};

// The grid whose busiest thread has the least to do.
Grid cut(int64_t m, int64_t n, int64_t row_unit, int64_t column_unit, int64_t threads) {
  const int64_t fewest_rows = divide_up(m, kLargestTile), fewest_columns = divide_up(n, kLargestTile);
  Grid best;
  double least = -1;
  const auto consider = [&](int64_t down, int64_t across) {
    Grid g;
    g.rows = std::min(m, divide_up(divide_up(m, down), row_unit) * row_unit);
    g.columns = std::min(n, divide_up(divide_up(n, across), column_unit) * column_unit);
    g.tile_rows = divide_up(m, g.rows);
    g.tile_columns = divide_up(n, g.columns);
    const auto rows = static_cast<double>(g.rows), columns = static_cast<double>(g.columns);
    const double cost =
        static_cast<double>(divide_up(g.tiles(), threads)) * (rows * columns + kPackedCost * (rows + columns));
    if (least < 0 || cost < least) {
      least = cost;
      best = g;
    }
  };
  for (int64_t down = fewest_rows; down <= fewest_rows + threads; ++down) {
    consider(down, fewest_columns);
    const int64_t step = threads / std::gcd(threads, down);
    consider(down, divide_up(fewest_columns, step) * step);
  }
  return best;
}

template <class T>
kernels::Strided<T> strided(const Tensor& x) {
  return {x.const_data_ptr<T>(), x.stride(0), x.stride(1)};
}

template <class T>
void compute(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& start, double operations) {
  const kernels::KernelSet<T>& set = kernels::kernel_set<T>();
  kernels::MatmulArgs<T> all;
  all.a = strided<T>(a);
  all.b = strided<T>(b);
  all.out = {out.mutable_data_ptr<T>(), out.stride(0)};
  if (start.defined()) all.start = {start.const_data_ptr<T>(), start.dim() == 2 ? start.stride(0) : 0};
  all.m = out.size(0);
  all.n = out.size(1);
  all.k = a.size(1);
  const int64_t threads =
      at::in_parallel_region()
          ? 1
          : std::clamp<int64_t>(static_cast<int64_t>(operations / kThreadOperations), 1, at::get_num_threads());
  const Grid grid = cut(all.m, all.n, set.matmul_rows, set.matmul_columns, threads);
  const auto tiles = [&](int64_t begin, int64_t end) {
    T* memory =
        static_cast<T*>(scratch(static_cast<size_t>(set.matmul_scratch(grid.rows, grid.columns, all.k)) * sizeof(T)));
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / grid.tile_columns * grid.rows, j = t % grid.tile_columns * grid.columns;
      kernels::MatmulArgs<T> tile = all;
      tile.a.data += i * all.a.row_step;
      tile.b.data += j * all.b.column_step;
      tile.out.data += i * all.out.stride + j;
      if (start.defined()) tile.start.data += i * all.start.stride + j;
      tile.m = std::min(grid.rows, all.m - i);
      tile.n = std::min(grid.columns, all.n - j);
      set.matmul(tile, memory);
    }
  };
  if (threads == 1) return tiles(0, grid.tiles());
  loom::parallel_for(0, grid.tiles(), divide_up(grid.tiles(), threads), tiles);
}

bool dense_rows(const Tensor& x) { return x.size(-1) <= 1 || x.stride(-1) == 1; }

// start undefined = zero.
void product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& start) {
  RECORD_FUNCTION("loom::matmul", std::vector<c10::IValue>{});
  const int64_t m = out.size(0), n = out.size(1), k = a.size(1);
  LOOM_CHECK(a.scalar_type() == out.scalar_type() && b.scalar_type() == out.scalar_type(), "matmul: ", a.scalar_type(),
             " times ", b.scalar_type(), " into ", out.scalar_type());
  const double operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  count_flops(operations, false);
  if (out.is_meta() || m == 0 || n == 0) return;
  LOOM_CHECK(a.is_cpu() && b.is_cpu(), "matmul: operands on ", a.device(), " and ", b.device());
  if (out.scalar_type() == at::kDouble) {
    compute<double>(out, a, b, start, operations);
  } else {
    compute<float>(out, a, b, start, operations);
  }
}

void check(const Tensor& out, const Tensor& a, const Tensor& b) {
  LOOM_CHECK(out.dim() == 2 && a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && out.size(0) == a.size(0) &&
                 out.size(1) == b.size(1),
             "matmul: ", a.sizes(), " times ", b.sizes(), " into ", out.sizes());
  LOOM_CHECK(dense_rows(out), "matmul: the result's rows are not dense");
}

}  // namespace

Products products_in_use() { return in_use().load(std::memory_order_relaxed); }
void use_products(Products products) { in_use().store(products, std::memory_order_relaxed); }

void matmul_into(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate) {
  const c10::NoGradGuard no_grad;
  check(out, a, b);
  if (computes(out)) return product(out, a, b, accumulate ? out : Tensor());
  Tensor result = out;
  if (accumulate) {
    result.addmm_(a, b);
  } else {
    at::mm_out(result, a, b);
  }
}

void matmul_add_into(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& start) {
  const c10::NoGradGuard no_grad;
  check(out, a, b);
  const bool row = start.dim() == 1;
  LOOM_CHECK((row && start.size(0) == out.size(1)) || start.sizes() == out.sizes(), "matmul: starts from ",
             start.sizes(), " for ", out.sizes());
  if (computes(out)) {
    LOOM_CHECK(start.scalar_type() == out.scalar_type() && dense_rows(start), "matmul: starts from ",
               start.scalar_type(), " with strides ", start.strides(), " for ", out.scalar_type());
    return product(out, a, b, start);
  }
  Tensor result = out;
  at::addmm_out(result, start, a, b);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  const c10::NoGradGuard no_grad;
  LOOM_CHECK(a.dim() == 2 && b.dim() == 2, "matmul: ", a.sizes(), " times ", b.sizes());
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  matmul_into(out, a, b);
  return out;
}

}  // namespace loom
