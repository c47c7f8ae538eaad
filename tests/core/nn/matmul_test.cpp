// Products of our own against float64 ones of LibTorch, over every edge of tiles, panels and slices; and the promise
// that an element's bits depend on nothing but its row, its column and k.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/base/error.h"
#include "core/nn/flops.h"
#include "core/nn/ops/matmul.h"
#include "core/nn/ops/pieces.h"
#include "tests/core/nn/levels.h"
#include "tests/support/bind.h"

namespace loom::test {
namespace {

// Whatever this processor's rule says.
class Matmul : public testing::Test {
 protected:
  Matmul() : before_(products_in_use()), threads_(at::get_num_threads()) {
    use_products(Products::own);
    at::manual_seed(11);
  }
  ~Matmul() override {
    use_products(before_);
    at::set_num_threads(threads_);
  }

 private:
  ScopedPieces fused_{Pieces::fused};
  Products before_;
  int threads_;
};

double tolerance(at::ScalarType dtype) { return dtype == at::kDouble ? 1e-15 : 4e-7; }

// [rows, columns], stored the other way round when asked.
Tensor random(int64_t rows, int64_t columns, bool transposed, at::ScalarType dtype) {
  const Tensor x = transposed ? at::randn({columns, rows}, at::kDouble).t() : at::randn({rows, columns}, at::kDouble);
  return x.to(dtype);
}

Tensor wide_product(const Tensor& a, const Tensor& b) { return at::mm(a.to(at::kDouble), b.to(at::kDouble)); }

// |found - expected| against what the sums are made of: single elements may cancel.
double error(const Tensor& found, const Tensor& a, const Tensor& b) {
  if (found.numel() == 0) return 0;
  const double size = wide_product(a.abs(), b.abs()).norm().item<double>();
  const double difference = (found.to(at::kDouble) - wide_product(a, b)).norm().item<double>();
  return size > 0 ? difference / size : difference;
}

TEST_F(Matmul, IsTheProductForEveryShapeAndTransposition) {
  const std::vector<int64_t> sizes{0, 1, 7, 31, 63, 65, 127, 1000};
  at_every_level([&] {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t m : sizes) {
        for (const int64_t n : sizes) {
          for (const int64_t k : sizes) {
            if (m * n * k > 8'500'000) continue;
            for (const bool a_way : {false, true}) {
              for (const bool b_way : {false, true}) {
                const Tensor a = random(m, k, a_way, dtype), b = random(k, n, b_way, dtype);
                const Tensor found = loom::matmul(a, b);
                ASSERT_EQ(found.sizes(), at::IntArrayRef({m, n}));
                ASSERT_LE(error(found, a, b), tolerance(dtype)) << m << " x " << k << " x " << n << " of " << dtype
                                                                << (a_way ? " A'" : " A") << (b_way ? "B'" : "B");
              }
            }
          }
        }
      }
    }
  });
}

TEST_F(Matmul, ReadsAndWritesRowsThatLieApart) {
  at_every_level([] {
    for (const int64_t m : {5, 64, 130}) {
      const Tensor a = at::randn({m, 90}).narrow(1, 3, 77), b = at::randn({77, 70}).narrow(1, 1, 45);
      const Tensor around = at::full({m, 60}, 7.0F);
      matmul_into(around.narrow(1, 10, 45), a, b);
      EXPECT_LE(relative_difference(around.narrow(1, 10, 45), wide_product(a, b)), 4 * tolerance(at::kFloat));
      EXPECT_TRUE((around.narrow(1, 0, 10) == 7).all().item<bool>());
      EXPECT_TRUE((around.narrow(1, 55, 5) == 7).all().item<bool>());
      // Neither rows nor columns dense.
      const Tensor every_other = at::randn({2 * m, 160}).slice(0, 0, 2 * m, 2).slice(1, 0, 154, 2);
      EXPECT_LE(relative_difference(loom::matmul(every_other, b), wide_product(every_other, b)),
                4 * tolerance(at::kFloat));
    }
  });
}

TEST_F(Matmul, StartsFromTheResultARowOrAnotherMatrix) {
  at_every_level([] {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t k : {0, 1, 100, 1300}) {
        for (const int64_t m : {1, 66}) {
          const Tensor a = random(m, k, false, dtype), b = random(k, 37, true, dtype), product = wide_product(a, b);
          const Tensor start = random(m, 37, false, dtype), row = random(1, 37, false, dtype)[0];
          Tensor out = start.clone();
          matmul_into(out, a, b, true);
          EXPECT_LE(relative_difference(out, start.to(at::kDouble) + product), 4 * tolerance(dtype));
          Tensor same = start.clone();
          matmul_add_into(same, a, b, same);
          EXPECT_TRUE(same_bits(same, out));
          Tensor other = at::full_like(start, NAN);
          matmul_add_into(other, a, b, start);
          EXPECT_TRUE(same_bits(other, out));
          matmul_add_into(other, a, b, row);
          EXPECT_LE(relative_difference(other, row.to(at::kDouble) + product), 4 * tolerance(dtype));
          matmul_into(other, a, b);
          EXPECT_LE(relative_difference(other, product), 4 * tolerance(dtype));
        }
      }
    }
  });
}

TEST_F(Matmul, BitsDependNeitherOnThreadsNorOnNeighbours) {
  at_every_level([] {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      for (const bool way : {false, true}) {
        // Several tiles of the result, several slices of k.
        const Tensor a = random(150, 1111, way, dtype), b = random(1111, 560, !way, dtype);
        at::set_num_threads(1);
        const Tensor whole = loom::matmul(a, b);
        for (const int threads : {2, 5}) {
          at::set_num_threads(threads);
          EXPECT_TRUE(same_bits(loom::matmul(a, b), whole)) << threads << " threads";
        }
        for (const int64_t rows : {1, 2, 5, 13, 100}) {
          const Tensor part = loom::matmul(a.narrow(0, 37, rows), b);
          EXPECT_TRUE(same_bits(part, whole.narrow(0, 37, rows))) << rows << " rows alone";
        }
        for (const int64_t columns : {1, 31, 33, 500}) {
          const Tensor part = loom::matmul(a, b.narrow(1, 37, columns));
          EXPECT_TRUE(same_bits(part, whole.narrow(1, 37, columns))) << columns << " columns alone";
        }
        EXPECT_TRUE(same_bits(loom::matmul(a.contiguous(), b.t().contiguous().t()), whole)) << "stored otherwise";
      }
    }
  });
}

class Counted : public FlopSink {
 public:
  double products = 0, repeated = 0;
  void add_flops(double flops, bool attention, bool again) override {
    EXPECT_FALSE(attention);
    (again ? repeated : products) += flops;
  }
  void attends(const AttentionSpec& /*spec*/) override {}
};

TEST_F(Matmul, CountsItsOperationsAlsoWithoutMemory) {
  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kMeta)}) {
    Counted counted;
    const CountFlops count(counted);
    const Tensor a = at::ones({3, 5}, device), b = at::ones({7, 5}, device);
    const Tensor out = loom::matmul(a, b.t());
    EXPECT_EQ(counted.products, 2 * 3 * 5 * 7);
    const ComputedAgain again;
    matmul_into(out, a, b.t(), true);
    EXPECT_EQ(counted.repeated, 2 * 3 * 5 * 7);
    const ComputedFirst first;
    matmul_add_into(out, a, b.t(), at::ones({7}, device));
    EXPECT_EQ(counted.products, 2 * 2 * 3 * 5 * 7);
  }
}

TEST_F(Matmul, WhatDoesNotFitIsRefused) {
  const Tensor a = at::ones({3, 5}), b = at::ones({5, 7}), out = at::empty({3, 7});
  EXPECT_THROW(matmul_into(out, a, b.t()), InternalError);
  EXPECT_THROW(matmul_into(at::empty({7, 3}), a, b), InternalError);
  EXPECT_THROW(matmul_into(at::empty({7, 3}).t(), a, b), InternalError);
  EXPECT_THROW(matmul_into(out, a.to(at::kDouble), b), InternalError);
  EXPECT_THROW(matmul_add_into(out, a, b, at::ones({3})), InternalError);
  EXPECT_THROW(matmul_add_into(out, a, b, at::ones({7}, at::kDouble)), InternalError);
}

TEST_F(Matmul, TheLibraryTakesTheRest) {
  const Tensor a = at::randn({20, 30}), b = at::randn({30, 10}), product = wide_product(a, b);
  EXPECT_LE(relative_difference(loom::matmul(a.to(at::kBFloat16), b.to(at::kBFloat16)), product), 2e-2);
  use_products(Products::library);
  EXPECT_LE(relative_difference(loom::matmul(a, b), product), 4 * tolerance(at::kFloat));
  Counted counted;
  const CountFlops count(counted);
  Tensor out = loom::matmul(a, b);
  EXPECT_EQ(counted.products, 0);  // LibTorch's own record tells of it
  matmul_add_into(out, a, b, out);
  EXPECT_LE(relative_difference(out, 2 * product), 4 * tolerance(at::kFloat));
}

}  // namespace
}  // namespace loom::test
