// `omniloom data tokenizer`: a byte-level BPE vocabulary from the data that a model will be trained on; and, with
// --encode and --decode, what a tokenizer makes of texts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/signal.h"
#include "core/base/text.h"
#include "core/data/bpe_tokenizer.h"
#include "core/data/bpe_trainer.h"
#include "core/data/strict_json.h"
#include "core/data/tokenizer_json.h"
#include "core/observe/progress.h"
#include "pipelines/cli.h"
#include "pipelines/tokenizer_texts.h"

namespace loom {
namespace {

constexpr int64_t kMany = 1'000'000'000'000;

struct TokenizerFlags {
  std::vector<std::string> inputs, special;
  std::string out = "tokenizer.json", encode, decode;
  int64_t vocab = 8192, min_frequency = 2, samples = 0;
  bool replace = false, whole = false;
};

[[noreturn]] void stopped() { throw Error("stopped; nothing was written", stop_exit_code()); }

std::vector<std::string> all_specials(const std::vector<std::string>& more) {
  std::vector<std::string> out{std::string(kEndOfText), std::string(kTurnBegin), std::string(kTurnEnd)};
  for (const std::string& special : more) {
    if (std::find(out.begin(), out.end(), special) == out.end()) out.push_back(special);
  }
  return out;
}

// Words that are set on the command line as a.b=c belong to the recipe.
TextInputs read_inputs(const TokenizerFlags& flags) {
  TextInputs out;
  for (const std::string& word : flags.inputs) {
    const bool override_of_recipe = word.find('=') != std::string::npos && !is_file(word) && !is_folder(word);
    (override_of_recipe ? out.overrides : out.paths).push_back(word);
  }
  out.samples = flags.samples;
  LOOM_CHECK_USER(!out.paths.empty(), "expected a recipe or files to learn words from");
  return out;
}

int train_tokenizer(const TokenizerFlags& flags) {
  LOOM_CHECK_USER(flags.out.ends_with(".json"), "--out ", flags.out, ": expected a name that ends in .json");
  LOOM_CHECK_USER(flags.replace || !is_file(flags.out), flags.out, ": exists; give another --out, or --replace");
  BpeTrainOptions options{flags.vocab, flags.min_frequency, all_specials(flags.special)};
  train_bpe({}, options);  // tells what is wrong with the options

  const double start = system_clock_seconds();
  Progress progress(stderr, ProgressPolicy::detect(stderr));
  const auto show = [&](int64_t done, int64_t total, const char* unit) {
    if (stop_requested()) stopped();
    ProgressState state;
    state.unit = unit;
    state.step = done;
    state.steps = total;
    progress.update(state);
  };
  const TextInputs inputs = read_inputs(flags);
  ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  WordCounter counter(pool);
  const TextsRead read = visit_texts(
      inputs, pool, [&](std::string_view text) { counter.add(text); }, show);
  const WordCounts counts = counter.finish();
  if (stop_requested()) stopped();
  LOOM_CHECK_USER(counts.bytes > 0, inputs.paths[0], ": no text to learn from",
                  read.unreadable == 0
                      ? ""
                      : concat("; ", read.unreadable, " samples could not be read, the first: ", read.first_reason));
  const BpeModel model = train_bpe(counts, options, [&](int64_t made, int64_t wanted) { show(made, wanted, "token"); });
  progress.finish();
  write_file_atomic(flags.out, write_tokenizer_json(model));

  const auto tokens = static_cast<int64_t>(model.tokens.size());
  const double rate = static_cast<double>(counts.bytes) / static_cast<double>(count_tokens(counts, model));
  std::printf("read    %s of text, %s different words\n", human_bytes(static_cast<double>(counts.bytes)).c_str(),
              with_commas(static_cast<int64_t>(counts.words.size())).c_str());
  if (read.unreadable > 0) {
    std::printf("skipped %s samples that cannot be read; the first: %s\n", with_commas(read.unreadable).c_str(),
                read.first_reason.c_str());
  }
  std::printf("tokens  %s: 256 bytes, %s learned, %s special\n", with_commas(tokens).c_str(),
              with_commas(tokens - 256 - static_cast<int64_t>(model.specials.size())).c_str(),
              with_commas(static_cast<int64_t>(model.specials.size())).c_str());
  if (tokens < flags.vocab) {
    std::printf("        fewer than %s, since no other pair stands %s times in this text%s\n",
                with_commas(flags.vocab).c_str(), with_commas(flags.min_frequency).c_str(),
                flags.min_frequency > 1 ? "; --min-frequency 1 takes all" : "");
  }
  std::printf("length  1.00 -> %.2f bytes per token on this text\n", rate);
  std::printf("time    %.1f s\n", system_clock_seconds() - start);
  std::printf("saved   %s; in the recipe: data.tokenizer: %s\n", flags.out.c_str(), flags.out.c_str());
  return 0;
}

// use(line, number) for each line, without its end; or once for the whole file.
void for_each_text(const std::string& path, bool whole, const std::function<void(const std::string&, int64_t)>& use) {
  const std::string text = read_text(path == "-" ? "/dev/stdin" : path);
  if (whole) return use(text, 1);
  int64_t number = 0;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    use(text.substr(at, end - at), number + 1);
    at = end + 1;
  }
}

std::unique_ptr<Tokenizer> named_tokenizer(const std::string& name) {
  return make_tokenizer(ConfigValue::string(name));
}

int show_ids(const TokenizerFlags& flags) {
  const std::unique_ptr<Tokenizer> tokenizer = named_tokenizer(flags.encode);
  for (const std::string& path : flags.inputs) {
    for_each_text(path, flags.whole, [&](const std::string& line, int64_t) {
      if (stop_requested()) throw Error("stopped", stop_exit_code());
      std::string out = "[";
      for (const int64_t id : tokenizer->encode(line)) out += (out.size() > 1 ? "," : "") + std::to_string(id);
      out += "]\n";
      std::fwrite(out.data(), 1, out.size(), stdout);
    });
  }
  return 0;
}

int show_texts(const TokenizerFlags& flags) {
  const std::unique_ptr<Tokenizer> tokenizer = named_tokenizer(flags.decode);
  for (const std::string& path : flags.inputs) {
    for_each_text(path, false, [&](const std::string& line, int64_t number) {
      const std::string where = concat(path, ":", number);
      const nlohmann::json ids = parse_strict_json(line, where);
      LOOM_CHECK_USER(ids.is_array(), where, ": expected a list of ids, found ", shown_json(ids));
      std::vector<int64_t> tokens;
      for (const nlohmann::json& id : ids) {
        LOOM_CHECK_USER(id.is_number_integer() && id >= 0 && id < tokenizer->vocab_size(), where,
                        ": expected ids from 0 to ", tokenizer->vocab_size() - 1, ", found ", shown_json(id));
        tokens.push_back(id.get<int64_t>());
      }
      const nlohmann::json text = tokenizer->decode(tokens);
      std::puts(text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    });
  }
  return 0;
}

}  // namespace

void add_data_tokenizer_command(CLI::App& data, Command& run) {
  CLI::App* command = data.add_subcommand(
      "tokenizer",
      "learn a vocabulary from data: omniloom data tokenizer recipe.yaml --vocab 8192 --out tokenizer.json");
  const auto flags = std::make_shared<TokenizerFlags>();
  command
      ->add_option("inputs", flags->inputs,
                   "a recipe (its training data; a.b=c sets its values), .jsonl files of samples, folders of pictures "
                   "with captions, or text files")
      ->required();
  command->add_option("--vocab", flags->vocab, "most tokens: 256 bytes, learned ones, special ones")
      ->capture_default_str();
  command->add_option("--out", flags->out, "file to write, as the tokenizers package reads it")->capture_default_str();
  command->add_flag("--replace", flags->replace, "overwrite it");
  command->add_option("--min-frequency", flags->min_frequency, "two tokens become one if they meet at least so often")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMany));
  command
      ->add_option("--special", flags->special,
                   "a special token beside <|endoftext|>, <|im_start|> and <|im_end|>; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--samples", flags->samples,
                   "only so many samples of each source, spread evenly, and lines of each text; 0 = all")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, kMany));
  CLI::Option* encode =
      command->add_option("--encode", flags->encode,
                          "train nothing: print the ids of each line of text files (- = stdin) by this tokenizer");
  CLI::Option* decode = command->add_option(
      "--decode", flags->decode, "train nothing: print the text of each line of ids, a list as --encode prints it");
  encode->excludes(decode);
  command->add_flag("--whole", flags->whole, "with --encode: a whole file at a time")->needs(encode);
  command->callback([flags, &run] {
    run = [flags] {
      if (!flags->encode.empty()) return show_ids(*flags);
      return flags->decode.empty() ? train_tokenizer(*flags) : show_texts(*flags);
    };
  });
}

}  // namespace loom
