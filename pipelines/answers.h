#pragma once
// Prompts for a trained run and the texts around them: shared by the forms of `omniloom generate` and by evaluation. A
// run that was trained on conversations is asked in turns; any other continues what it is given.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/picture.h"
#include "core/data/sample.h"
#include "core/model/generator.h"
#include "pipelines/job.h"

namespace loom {

struct AskOptions {
  bool chat = false;
  std::string system;    // of a conversation; "" = none
  std::string modality;  // encoder that takes the pictures; "" = the model takes none
  PictureOptions pictures;
  GenerateOptions generate;
};

// Is it trained on a source of conversations (chat, or a folder with a prompt)?
bool trained_on_conversations(const Recipe& recipe);

void add_turn(RawSample& sample, const std::string& role, std::vector<Media> media, const std::string& text);
// A sample whose answer is to be written: in turns, the answer's turn is open at the end.
RawSample make_question(const std::string& name, std::vector<Media> media, const std::string& text,
                        const AskOptions& options);
// Takes the last answer out of a sample, so that it is written anew, and returns its text; "" when there is none.
std::string cut_answer(RawSample& sample);

// What a sample says before its answer, without special tokens and media: the text of its only turn, or lines of
// "role: text".
std::string prompt_text(const RawSample& sample);

// Bytes of text without a character at its end that is not complete yet.
size_t whole_characters(std::string_view text);
// With U+FFFD for every byte that belongs to no character.
std::string clean_text(std::string_view text);

// "a.png", or "images-idx3-ubyte.gz#17" for picture 17 of an IDX file. UserError when it cannot be read.
Media open_picture(const std::string& place, const AskOptions& options);
// UserError when the sample cannot be prepared.
PreparedSample prepare_question(const Job& job, const RawSample& sample);

}  // namespace loom
