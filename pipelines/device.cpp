#include "pipelines/device.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "core/base/error.h"
#include "core/base/gpu.h"
#include "core/base/text.h"
#include "core/data/source.h"

namespace loom {
namespace {

const ConfigValue& asked(const Recipe& recipe) { return recipe.train().at("device"); }

bool is_gpu(const std::string& text) { return text.rfind("cuda", 0) == 0; }

// The number in "cuda:N"; 0 for "cuda", -1 for anything else.
int gpu_index(const std::string& text) {
  if (text == "cuda") return 0;
  if (text.rfind("cuda:", 0) != 0) return -1;
  int index = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 5, end, index);
  return error == std::errc() && stop == end && index >= 0 && index < 128 ? index : -1;
}

c10::Device gpu(int index) {
  use_gpu(index);
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

void check_device(const Recipe& recipe) {
  const ConfigValue& value = asked(recipe);
  const std::string& text = value.as_string();
  LOOM_CHECK_USER(text == "auto" || text == "cpu" || gpu_index(text) >= 0, said_at(value),
                  "expected auto, cpu, cuda or cuda:N, found '", text, "'");
}

c10::Device choose_device(const Recipe& recipe, int ranks, int local) {
  check_device(recipe);
  const ConfigValue& value = asked(recipe);
  const std::string& text = value.as_string();
  const c10::Device cpu(c10::DeviceType::CPU);
  if (!is_gpu(text)) return text == "auto" && ranks == 1 && gpu_count() > 0 ? gpu(local % gpu_count()) : cpu;
  const std::string support = gpu_support();
  LOOM_CHECK_USER(!support.empty(), said_at(value), "'", text,
                  "', but this Omniloom was built without CUDA; expected auto or cpu");
  LOOM_CHECK_USER(ranks == 1, said_at(value), "'", text, "', but ranks that are threads of one process compute on the ",
                  "cpu; expected auto or cpu");
  const int count = gpu_count(), index = text == "cuda" && count > 0 ? local % count : gpu_index(text);
  LOOM_CHECK_USER(count > 0, said_at(value), "'", text, "', but no GPU answers (", support,
                  " is built in); expected auto or cpu");
  LOOM_CHECK_USER(index < count, said_at(value), "'", text, "', but the last GPU here is cuda:", count - 1);
  return gpu(index);
}

std::string device_text(c10::Device device) {
  return device.is_cuda() ? concat(gpu_info(device.index()).name, " (", device.str(), ")") : device.str();
}

std::string gpu_text() {
  const std::string support = gpu_support();
  if (support.empty()) return "not built in";
  std::string out = support.substr(support.find(' ') + 1);
  const int count = gpu_count();
  if (count == 0) return out + " built in, no GPU here";
  for (int i = 0; i < count; ++i) {
    const GpuInfo info = gpu_info(i);
    out +=
        concat(" · ", info.name, ", ", human_bytes(static_cast<double>(info.memory)), ", sm_", info.major, info.minor);
  }
  return out;
}

// All tries of a size are asked for at once, so that what is measured is the GPU and not the host.
double measured_gpu_peak(at::ScalarType dtype) {
  constexpr int kTries = 10;
  double best = 0;
  for (const int64_t size : {4096, 8192}) {
    const at::Tensor a = at::randn({size, size}, at::TensorOptions(at::kFloat).device(at::kCUDA)).to(dtype);
    at::Tensor out = at::empty_like(a);
    at::mm_out(out, a, a);
    synchronize_gpu();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTries; ++i) at::mm_out(out, a, a);
    synchronize_gpu();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, kTries * 2.0 * std::pow(static_cast<double>(size), 3) / std::max(seconds, 1e-9));
  }
  return best;
}

}  // namespace loom
