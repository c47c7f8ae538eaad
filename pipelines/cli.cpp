#include "pipelines/cli.h"

#include <iostream>
#include <new>

#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/signal.h"
#include "core/base/version.h"
#include "pipelines/plugin_commands.h"

namespace loom {
namespace {

// The text as it is: a mistake begins with its file and line, so that editors and people find it.
int fail(const std::string& text, int code) {
  std::cerr << text << (text.empty() || text.back() != '\n' ? "\n" : "") << std::flush;
  return code;
}

int run_guarded(const Command& run) {
  try {
    return run();
  } catch (const Error& error) {
    return fail(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 5);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool memory = text.find("allocate memory") != std::string::npos;
    return fail(memory ? "out of memory: " + text.substr(0, text.find('\n')) : "internal error: " + text,
                memory ? 5 : 70);
  } catch (const std::exception& error) {
    return fail(concat("internal error: ", error.what()), 70);
  }
}

// "omniloom data": as far as the command line was understood.
std::string command_of(const CLI::App& app) {
  const std::vector<CLI::App*> inner = app.get_subcommands();
  return inner.empty() ? app.get_name() : app.get_name() + " " + command_of(*inner.front());
}

void add_data_commands(CLI::App& root, Command& run) {
  CLI::App* data = root.add_subcommand("data", "look at data before training on it");
  data->require_subcommand(1);
  add_data_check_command(*data, run);
  add_data_preview_command(*data, run);
  add_data_tokenizer_command(*data, run);
}

}  // namespace

int run_program(int argc, char** argv) {
  CLI::App app{"Omniloom trains multimodal models: encoders, connectors and backbones as plugins, from a YAML recipe.",
               "omniloom"};
  app.set_version_flag("--version", std::string("omniloom ") + kVersion);
  app.require_subcommand(1);
  std::string level = "info";
  app.add_option("--log-level", level, "debug, info, warn, error or off")->capture_default_str();
  Command run;
  add_train_command(app, run);
  add_eval_command(app, run);
  add_generate_command(app, run);
  add_check_command(app, run);
  add_plan_command(app, run);
  add_data_commands(app, run);
  add_checkpoint_commands(app, run);
  add_mix_command(app, run);
  add_env_command(app, run);
  add_plugin_commands(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(concat(error.what(), "; see ", command_of(app), " --help"), 2);
  }
  install_signal_handlers();
  return run_guarded([&] {
    set_log_level(parse_log_level(level));
    return run ? run() : 0;
  });
}

}  // namespace loom
