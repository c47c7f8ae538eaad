// What is said about the machine is possible, and measuring leaves no trace.
#include "pipelines/machine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <ATen/Parallel.h>

#include "core/nn/kernels/kernel_set.h"

namespace loom {
namespace {

TEST(Machine, SaysWhatIsPossible) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_LE(machine.cores, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  EXPECT_GT(machine.memory, int64_t{1} << 26);
  EXPECT_EQ(machine.isa, kernels::level_name(kernels::current_level()));
}

TEST(Machine, ThePeakIsMeasuredAndThreadsStay) {
  const int before = at::get_num_threads();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const double peak = measured_gemm_peak(dtype, 1);
    EXPECT_GT(peak, 1e7) << c10::toString(dtype);
    EXPECT_LT(peak, 1e15) << c10::toString(dtype);
    EXPECT_EQ(at::get_num_threads(), before);
  }
}

TEST(Machine, TheAgeOfThisProcessGrowsWithTime) {
  const double first = process_age_seconds();
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 1e6);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(process_age_seconds(), first + 0.03);
}

}  // namespace
}  // namespace loom
