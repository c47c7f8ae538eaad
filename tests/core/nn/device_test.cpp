// What devices other than the CPU go through, as far as a machine without a GPU can tell.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/gpu.h"
#include "core/base/upload.h"
#include "core/nn/ops/cuda_pieces.h"
#include "core/nn/ops/pieces.h"
#include "core/parallel/memory_meter.h"

namespace loom {
namespace {

TEST(Upload, WhatIsThereStays) {
  const Tensor host = at::arange(6);
  EXPECT_TRUE(upload(host, c10::Device(at::kCPU)).is_same(host));
  EXPECT_TRUE(upload(host, c10::Device(at::kMeta)).is_meta());
  EXPECT_EQ(upload(host, c10::Device(at::kMeta)).sizes(), host.sizes());
}

TEST(Gpu, BuildAndPiecesAgree) {
  EXPECT_EQ(std::string(gpu_support()).empty(), cuda_pieces() == nullptr);
  EXPECT_EQ(backend_of(at::ones({1})), Backend::cpu);
  EXPECT_EQ(backend_of(at::ones({1}, at::kMeta)), Backend::cpu);
}

TEST(Gpu, NoneAnswersQuietly) {
  if (gpu_count() > 0) GTEST_SKIP() << "a GPU answers here";
  EXPECT_THROW(gpu_info(0), Error);
  EXPECT_EQ(gpu_memory().peak, 0);
  reset_gpu_memory_peak();
  synchronize_gpu();
  EXPECT_EQ(memory_use(c10::DeviceType::CUDA).live, 0);
  reset_memory_peak(c10::DeviceType::CUDA);
}

}  // namespace
}  // namespace loom
