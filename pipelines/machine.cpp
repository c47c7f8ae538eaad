// Linux says all of it in text files: /proc/cpuinfo, and the limits of the control groups that the process is in.
#include "pipelines/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/base/tensor.h"
#include "core/base/text.h"
#include "core/nn/kernels/kernel_set.h"
#include "core/nn/ops/matmul.h"

namespace loom {
namespace {

// The value of "key : value" in /proc/cpuinfo, of the first processor.
std::string cpu_field(const std::string& key) {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || trim(line.substr(0, colon)) != key) continue;
    return std::string(trim(line.substr(colon + 1)));
  }
  return "";
}

std::string cpu_name() {
  for (const char* key : {"model name", "Model", "cpu model", "uarch"}) {
    std::string name = cpu_field(key);
    if (!name.empty()) return name;
  }
  utsname names{};
  return ::uname(&names) == 0 ? names.machine : "unknown";
}

bool has_native_bf16() {
  std::istringstream flags(cpu_field("flags") + " " + cpu_field("Features"));
  std::string flag;
  while (flags >> flag) {
    if (flag == "avx512_bf16" || flag == "amx_bf16" || flag == "bf16") return true;
  }
  return false;
}

std::string first_word(const std::string& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

// A limit in bytes; 0 for "max", nothing, or what is no limit.
int64_t read_bytes(const std::string& file) {
  const std::string word = first_word(file);
  if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || word.size() > 18) return 0;
  return std::stoll(word);
}

// Calls `use` with every control group folder from the process's own up to the root. `controller` is empty for version
// 2.
template <class Use>
void each_group(const std::string& controller, const Use& use) {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const std::vector<std::string> parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::vector<std::string> controllers = split(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    std::string path = parts[2];
    const std::string root = "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
    while (!path.empty() && path != "/") {
      use(root + path);
      path.resize(path.rfind('/'));
    }
    use(root);
  }
}

int64_t memory_limit() {
  const auto pages = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES));
  int64_t limit = pages * static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  const auto lower = [&](int64_t bytes) {
    if (bytes > 0) limit = std::min(limit, bytes);
  };
  each_group("", [&](const std::string& folder) { lower(read_bytes(folder + "/memory.max")); });
  each_group("memory", [&](const std::string& folder) { lower(read_bytes(folder + "/memory.limit_in_bytes")); });
  return limit;
}

int usable_cores() {
  int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  each_group("", [&](const std::string& folder) {
    std::ifstream in(folder + "/cpu.max");  // "200000 100000", or "max 100000"
    double quota = 0, period = 0;
    if (in >> quota >> period && quota > 0 && period > 0)
      cores = std::clamp(static_cast<int>(std::ceil(quota / period)), 1, cores);
  });
  return cores;
}

// Seconds of the fastest of several products: at least two, and as many as fit into `all` seconds, up to `most`.
double fastest_product(const Tensor& a, const Tensor& b, Tensor& out, double all, int most) {
  double best = 1e9, spent = 0;
  for (int tries = 0; tries < 2 || (tries < most && spent < all); ++tries) {
    const auto begin = std::chrono::steady_clock::now();
    matmul_into(out, a, b);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::min(best, std::max(seconds, 1e-9));
    spent += seconds;
  }
  return best;
}

}  // namespace

Machine this_machine() {
  Machine out;
  out.cpu = cpu_name();
  out.cores = usable_cores();
  out.memory = memory_limit();
  out.isa = kernels::level_name(kernels::current_level());
  out.native_bf16 = has_native_bf16();
  return out;
}

double process_age_seconds() {
  std::ifstream in("/proc/self/stat");
  std::string text;
  std::getline(in, text);
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  constexpr int kStartTime = 20;  // of the fields behind the name: in ticks, since the machine started
  std::string field;
  for (int i = 0; i < kStartTime; ++i) fields >> field;
  const double ticks = fields ? std::strtod(field.c_str(), nullptr) : 0;
  timespec now{};
  if (ticks <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  return std::max(0.0, seconds - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

// Larger and larger products, until one takes long enough to be measured and is not much faster than the smaller one.
// On a busy machine small products wait for their threads, so time alone does not tell.
double measured_gemm_peak(at::ScalarType dtype, int threads) {
  constexpr double kOnce = 0.008, kTry = 0.05, kLast = 0.1;  // seconds
  constexpr int64_t kSmallest = 128, kLargest = 4096;
  const int before = at::get_num_threads();
  at::set_num_threads(std::max(threads, 1));
  double best = 0;
  for (int64_t size = kSmallest; size <= kLargest; size *= 2) {
    const Tensor a = at::ones({size, size}, at::TensorOptions(dtype)), b = at::ones_like(a);
    Tensor out = at::empty_like(a);
    const double flops = 2.0 * std::pow(static_cast<double>(size), 3);
    const double once = fastest_product(a, b, out, kTry, 5);
    const bool faster = flops / once > 1.5 * best;
    best = std::max(best, flops / once);
    if (once < kOnce || (faster && once < kTry)) continue;
    best = std::max(best, flops / fastest_product(a, b, out, kLast, 1000));
    break;
  }
  at::set_num_threads(before);
  return best;
}

}  // namespace loom
