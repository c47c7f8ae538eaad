#pragma once
// The command line. Each command adds its options and, when chosen, sets what to run; main turns errors into exit
// codes.
#include <functional>

namespace CLI {
class App;
}

namespace loom {

using Command = std::function<int()>;

void add_train_command(CLI::App& root, Command& run);
void add_eval_command(CLI::App& root, Command& run);
void add_generate_command(CLI::App& root, Command& run);
void add_check_command(CLI::App& root, Command& run);
void add_plan_command(CLI::App& root, Command& run);
void add_mix_command(CLI::App& root, Command& run);
void add_env_command(CLI::App& root, Command& run);
void add_checkpoint_commands(CLI::App& root, Command& run);
// The parts of `omniloom data`.
void add_data_check_command(CLI::App& data, Command& run);
void add_data_preview_command(CLI::App& data, Command& run);
void add_data_tokenizer_command(CLI::App& data, Command& run);

// Parses, runs, and returns the exit code: 0 done, 2 user's mistake, 3 plugin, 4 peer, 5 environment, 70 our bug,
// 130/143 stopped.
int run_program(int argc, char** argv);

}  // namespace loom
