#pragma once
// `omniloom generate --interactive`: a prompt per line, the answer as it comes. On a terminal there is a prompt sign,
// and Ctrl-C stops an answer; from a pipe or a file lines are read all the same.
#include "pipelines/answers.h"

namespace loom {

// Reads file descriptor `input` to its end (Ctrl-D) or /quit; answers go to stdout, notes to stderr. Returns the exit
// code.
int generate_chat(const Job& job, AskOptions options, int input);

}  // namespace loom
