#pragma once
// The words of a data set, for training a tokenizer: of a recipe's training samples, of chat files, picture folders and
// plain texts.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/thread_pool.h"

namespace loom {

struct TextInputs {
  std::vector<std::string> paths;      // recipe.yaml, .jsonl or .json, folders of pictures, texts
  std::vector<std::string> overrides;  // of the recipe
  int64_t samples = 0;                 // of each source and text file; 0 = all
};

struct TextsRead {
  int64_t unreadable = 0;
  std::string first_reason;
};

// use(text) for every text, in order, on this thread; files are read in the pool, pictures not at all. progress(done,
// total, unit) now and then; total 0 = unknown. Ends early when a stop is requested.
TextsRead visit_texts(const TextInputs& inputs, ThreadPool& pool, const std::function<void(std::string_view)>& use,
                      const std::function<void(int64_t, int64_t, const char*)>& progress);

}  // namespace loom
