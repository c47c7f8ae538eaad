// `omniloom env`: everything about this program and this machine that a bug report needs, short enough to paste.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "pipelines/build_info.h"  // made by CMakeLists.txt
#include "pipelines/cli.h"
#include "pipelines/device.h"
#include "pipelines/machine.h"
#include "plugins/loader/plugin_loader.h"

namespace loom {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kVariables[] = {"OMNILOOM_PLUGIN_PATH",
                                      "OMP_NUM_THREADS",
                                      "MKL_NUM_THREADS",
                                      "TORCH_PREFIX",
                                      "CUDA_VISIBLE_DEVICES",
                                      "RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "LD_LIBRARY_PATH",
                                      "LD_PRELOAD"};

std::string file_of(const void* symbol) {
  Dl_info info{};
  return ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Where the folder's disk has room; 0 when nobody says.
int64_t free_bytes() {
  std::error_code error;
  const fs::space_info space = fs::space(".", error);
  return error ? 0 : static_cast<int64_t>(space.available);
}

Json plugins_json() {
  Registry registry;
  const PluginLoader loader(registry);
  Json out;
  out["searched"] = loader.searched();
  out["found"] = Json::array();
  for (const PluginStatus& plugin : loader.list()) {
    Json one{
        {"name", plugin.name}, {"version", plugin.version}, {"provides", plugin.provides}, {"status", plugin.status}};
    if (!plugin.path.empty()) one["path"] = plugin.path;
    if (!plugin.reason.empty()) one["reason"] = plugin.reason;
    out["found"].push_back(std::move(one));
  }
  return out;
}

Json environment(bool measure) {
  const Machine machine = this_machine();
  const int threads = machine.cores;
  Json out;
  out["omniloom"] = kVersion;
  out["build"] = {{"type", kBuildType}, {"compiler", kCompiler}};
  out["libtorch"] = {{"version", core_descriptor().field("torch")},
                     {"path", file_of(reinterpret_cast<const void*>(&at::get_num_threads))}};
  out["cuda"] = gpu_text();
  out["opencv"] = kOpenCvVersion;
  out["cpu"] = {{"name", machine.cpu},
                {"cores", machine.cores},
                {"threads", at::get_num_threads()},
                {"kernels", machine.isa},
                {"native_bf16", machine.native_bf16}};
  if (measure) {
    Json& peak = out["peak_flops"];
    peak["fp32"] = measured_gemm_peak(at::kFloat, threads);
    peak["bf16"] = measured_gemm_peak(at::kBFloat16, threads);
    peak["fp64"] = measured_gemm_peak(at::kDouble, threads);
  }
  out["memory_bytes"] = machine.memory;
  std::error_code error;
  out["folder"] = {{"path", fs::current_path(error).string()}, {"free_bytes", free_bytes()}};
  out["plugins"] = plugins_json();
  Json& variables = out["variables"] = Json::object();
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return out;
}

void row(const char* name, const std::string& value) { std::printf("%-9s %s\n", name, value.c_str()); }

std::string gflops(double per_second) {
  char text[32];
  std::snprintf(text, sizeof text, per_second < 1e12 ? "%.0f GFLOP/s" : "%.2f TFLOP/s",
                per_second < 1e12 ? per_second / 1e9 : per_second / 1e12);
  return text;
}

void print_plugins(const Json& plugins) {
  const char* name = "plugins";
  for (const Json& plugin : plugins.at("found")) {
    const std::vector<std::string> provides = plugin.at("provides");
    row(name, concat(plugin.at("name").get<std::string>(), " ", plugin.at("version").get<std::string>(), "  ",
                     join(provides, ", "), "  ", plugin.at("status").get<std::string>(),
                     plugin.contains("path") ? "  " + plugin.at("path").get<std::string>() : "",
                     plugin.contains("reason") ? ": " + plugin.at("reason").get<std::string>() : ""));
    name = "";
  }
  if (plugins.at("found").empty()) row("plugins", "none");
  row("searched", plugins.at("searched"));
}

void print(const Json& env) {
  const Json &build = env.at("build"), &torch = env.at("libtorch"), &cpu = env.at("cpu"), &folder = env.at("folder");
  row("omniloom", concat(env.at("omniloom").get<std::string>(), " · ", build.at("type").get<std::string>(), " · ",
                         build.at("compiler").get<std::string>()));
  row("libtorch", concat(torch.at("version").get<std::string>(), " · ", torch.at("path").get<std::string>()));
  row("cuda", env.at("cuda"));
  row("opencv", env.at("opencv"));
  row("cpu", cpu.at("name"));
  const int cores = cpu.at("cores"), threads = cpu.at("threads");
  row("cores", concat(cores, " usable · ", threads, threads == 1 ? " thread" : " threads", " of LibTorch · ",
                      cpu.at("kernels").get<std::string>(), " kernels · ",
                      cpu.at("native_bf16").get<bool>() ? "native bf16" : "no native bf16"));
  if (env.contains("peak_flops")) {
    const Json& peak = env.at("peak_flops");
    row("peak", concat("fp32 ", gflops(peak.at("fp32")), " · bf16 ", gflops(peak.at("bf16")), " · fp64 ",
                       gflops(peak.at("fp64")), " · matrix products, ", cores, cores == 1 ? " thread" : " threads"));
  }
  row("memory", human_bytes(env.at("memory_bytes")));
  row("folder", concat(folder.at("path").get<std::string>(), " · ", human_bytes(folder.at("free_bytes")), " free"));
  print_plugins(env.at("plugins"));
  const char* name = "variables";
  for (const auto& [key, value] : env.at("variables").items()) {
    row(name, concat(key, "=", value.get<std::string>()));
    name = "";
  }
  if (env.at("variables").empty()) row(name, "none set");
}

}  // namespace

void add_env_command(CLI::App& root, Command& run) {
  struct Flags {
    bool json = false, quick = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = root.add_subcommand("env", "versions, machine, plugins and settings; paste it into a bug report");
  command->add_flag("--json", flags->json, "the same as JSON");
  command->add_flag("--quick", flags->quick, "do not measure the peak (half a second)");
  command->callback([flags, &run] {
    run = [flags] {
      const Json env = environment(!flags->quick);
      if (flags->json) {
        std::printf("%s\n", env.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
      } else {
        print(env);
      }
      return 0;
    };
  });
}

}  // namespace loom
