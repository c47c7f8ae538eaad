// What is written reads back the same; harmless variants are read; everything else is one line that names file and key.
#include "core/data/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/data/bpe_trainer.h"
#include "tests/core/checkpoint/files.h"
#include "tests/support/draws.h"

namespace loom {
namespace {

using Json = nlohmann::json;

BpeModel small_model() {
  ThreadPool pool(1);
  WordCounter counter(pool);
  counter.add("abab ab abc \"quoted\\\" zwölf zwölf \n\n\t\x7f");
  return train_bpe(counter.finish(), {290, 1, {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<\"\\ü>"}});
}

Json small_json() { return Json::parse(write_tokenizer_json(small_model())); }

void expect_equal(const BpeModel& a, const BpeModel& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.specials, b.specials);
  ASSERT_EQ(a.merges.size(), b.merges.size());
  for (size_t i = 0; i < a.merges.size(); ++i) {
    EXPECT_EQ(a.merges[i].left, b.merges[i].left);
    EXPECT_EQ(a.merges[i].right, b.merges[i].right);
    EXPECT_EQ(a.merges[i].result, b.merges[i].result);
  }
}

std::string refusal(const std::string& text) {
  return test::line_of<UserError>([&] { parse_tokenizer_json(text, "t.json"); });
}

template <class Change>
std::string refusal_of(const Change& change) {
  Json json = small_json();
  change(json);
  return refusal(json.dump());
}

TEST(TokenizerJson, WhatIsWrittenReadsBack) {
  const BpeModel model = small_model();
  EXPECT_GT(model.merges.size(), 5u);
  expect_equal(parse_tokenizer_json(write_tokenizer_json(model), "t.json"), model);
}

TEST(TokenizerJson, FilesAreReadAndNamedInMessages) {
  const test::TempFolder folder;
  const std::string path = folder.write("tokenizer.json", write_tokenizer_json(small_model()));
  ConfigValue name = ConfigValue::string(path);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(name);
  EXPECT_EQ(tokenizer->vocab_size(), static_cast<int64_t>(small_model().tokens.size()));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abab ü")), "abab ü");
  const auto refused = [](const std::string& text) {
    ConfigValue value = ConfigValue::string(text);
    value.mark = {"recipe.yaml", 8, 14};
    value.path = "data.tokenizer";
    return test::line_of<UserError>([&] { make_tokenizer(value); });
  };
  EXPECT_EQ(refused(folder / "absent.json"),
            "recipe.yaml:8:14: data.tokenizer: " + (folder / "absent.json") + ": no such file");
  const std::string bad = folder.write("bad.json", "{\n  \"model\": [,]\n}");
  EXPECT_EQ(refused(bad), "recipe.yaml:8:14: data.tokenizer: " + bad + ":2:13: is no valid JSON");
  EXPECT_HAS(refused("byte"), "no tokenizer 'byte'; did you mean 'bytes'? (there is: bytes, or the path of a");
}

TEST(TokenizerJson, HarmlessVariants) {
  const BpeModel model = small_model();
  const auto same = [&](const auto& change) {
    Json json = small_json();
    change(json);
    expect_equal(parse_tokenizer_json(json.dump(), "t.json"), model);
  };
  same([](Json& j) {
    for (Json& merge : j["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  });
  same([](Json& j) { j["post_processor"] = nullptr; });
  same([](Json& j) {
    for (const char* key : {"post_processor", "normalizer", "version", "truncation", "padding"}) j.erase(key);
    for (const char* key : {"dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"})
      j["model"].erase(key);
  });
  same([](Json& j) {
    j["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
    j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({j["pre_tokenizer"]})}};
    j["post_processor"] = {{"type", "Sequence"}, {"processors", Json::array({j["post_processor"]})}};
    j["decoder"] = {{"type", "Sequence"}, {"decoders", Json::array({j["decoder"]})}};
    j["pre_tokenizer"]["pretokenizers"][0].erase("use_regex");
  });
  same([](Json& j) {
    j["model"]["continuing_subword_prefix"] = "";
    j["model"]["end_of_word_suffix"] = "";
    j["model"]["unk_token"] = "<|endoftext|>";
    j["model"]["dropout"] = 0.0;
  });
  // Special tokens may stand in the vocabulary, too.
  same([](Json& j) {
    for (const Json& token : j["added_tokens"]) j["model"]["vocab"][token["content"].get<std::string>()] = token["id"];
  });
}

TEST(TokenizerJson, WhatIsNotImplementedIsRefused) {
  using J = Json&;
  EXPECT_EQ(refusal_of([](J j) {
              j["normalizer"] = {{"type", "NFC"}};
            }),
            "t.json: normalizer: expected null, found \"NFC\"");
  EXPECT_HAS(refusal_of([](J j) {
               j["pre_tokenizer"] = {{"type", "Whitespace"}};
             }),
             "t.json: pre_tokenizer.type: expected \"ByteLevel\", found \"Whitespace\"");
  EXPECT_HAS(refusal_of([](J j) { j["pre_tokenizer"] = nullptr; }), "pre_tokenizer: expected ByteLevel, found null");
  EXPECT_HAS(refusal_of([](J j) { j["pre_tokenizer"]["add_prefix_space"] = true; }),
             "pre_tokenizer.add_prefix_space: expected false, found true");
  EXPECT_HAS(refusal_of([](J j) { j["pre_tokenizer"].erase("add_prefix_space"); }),
             "pre_tokenizer.add_prefix_space: expected false, found nothing");
  EXPECT_HAS(refusal_of([](J j) { j["pre_tokenizer"]["use_regex"] = false; }), "use_regex: expected true, found false");
  EXPECT_HAS(refusal_of([](J j) {
               const Json one = j["pre_tokenizer"];
               j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {one, one}}};
             }),
             "pre_tokenizer.pretokenizers: expected a list of one, found a list of 2");
  EXPECT_HAS(refusal_of([](J j) {
               j["post_processor"] = {{"type", "TemplateProcessing"}};
             }),
             "post_processor.type: expected \"ByteLevel\", found \"TemplateProcessing\"");
  EXPECT_HAS(refusal_of([](J j) { j["decoder"] = {{"type", "Metaspace"}}; }), "decoder.type: expected \"ByteLevel\"");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["type"] = "Unigram"; }),
             "model.type: expected \"BPE\", found \"Unigram\"");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["byte_fallback"] = true; }),
             "model.byte_fallback: expected false, found true");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["ignore_merges"] = true; }), "model.ignore_merges: expected false");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["dropout"] = 0.1; }), "model.dropout: expected null, found 0.1");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["end_of_word_suffix"] = "</w>"; }),
             "model.end_of_word_suffix: expected null, found \"</w>\"");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["vocabulary"] = 1; }), "model: unknown key 'vocabulary'");
  EXPECT_HAS(refusal_of([](J j) { j["decodr"] = 1; }), "t.json: decodr: unknown key; did you mean 'decoder'?");
  EXPECT_HAS(refusal_of([](J j) {
               j["truncation"] = {{"max_length", 5}};
             }),
             "truncation: expected null, found an object");
  EXPECT_HAS(refusal_of([](J j) { j["version"] = "2.0"; }), "version: expected \"1.0\", found \"2.0\"");
  EXPECT_HAS(refusal_of([](J j) { j["added_tokens"][1]["special"] = false; }),
             "added_tokens[1].special: expected true, found false");
}

TEST(TokenizerJson, DamagedFiles) {
  using J = Json&;
  EXPECT_EQ(refusal(""), "t.json: is empty; expected JSON");
  EXPECT_EQ(refusal("{"), "t.json:1:2: is no valid JSON");
  EXPECT_EQ(refusal("[1]"), "t.json: the file: expected an object, found a list of 1");
  EXPECT_EQ(refusal("{}"), "t.json: pre_tokenizer: expected ByteLevel, found nothing");
  EXPECT_EQ(refusal("{\"version\": \"1.0\", \"version\": \"1.0\"}"),
            "t.json: key 'version' stands twice in one object");
  EXPECT_EQ(refusal("{\"\xff\": 1}"), "t.json:1:3: is no valid JSON");
  EXPECT_HAS(refusal("{\"model\": " + std::string(100'000, '[')), "inside each other");
  EXPECT_HAS(refusal("{\"model\": 1e999}"), "t.json");
  EXPECT_HAS(refusal_of([](J j) { j.erase("model"); }), "t.json: model: is missing");
  EXPECT_HAS(refusal_of([](J j) { j["model"] = 5; }), "model: expected an object, found 5");
  EXPECT_HAS(refusal_of([](J j) { j["model"].erase("vocab"); }), "model.vocab: is missing");
  EXPECT_HAS(refusal_of([](J j) { j["model"].erase("merges"); }), "model.merges: is missing");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["vocab"] = Json::array(); }), "model.vocab: expected an object");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["merges"] = 1; }), "model.merges: expected a list, found 1");
  EXPECT_HAS(refusal_of([](J j) { j["added_tokens"] = 1; }), "added_tokens: expected a list, found 1");
}

TEST(TokenizerJson, IdsWithHolesDoublesAndOutOfRange) {
  using J = Json&;
  EXPECT_HAS(refusal_of([](J j) { j["model"]["vocab"]["ab"] = 9999; }),
             "model.vocab: no token has id 256, but ids go to 9999");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["vocab"]["ab"] = 65; }), "model.vocab: 'A' and 'ab' both have id 65");
  for (const Json& id : {Json(-1), Json(1e30), Json(3.5), Json(4'000'000'000u), Json(UINT64_MAX), Json(INT64_MIN),
                         Json("7"), Json(nullptr)}) {
    EXPECT_HAS(refusal_of([&](J j) { j["model"]["vocab"]["ab"] = id; }),
               "model.vocab: 'ab': expected an id from 0, found ");
    EXPECT_HAS(refusal_of([&](J j) { j["added_tokens"][0]["id"] = id; }), "added_tokens[0].id: expected an id from 0");
  }
  EXPECT_HAS(refusal_of([](J j) { j["added_tokens"][0]["id"] = INT32_MAX; }), "but ids go to 2147483647");
  EXPECT_HAS(refusal_of([](J j) { j["added_tokens"][0]["id"] = 3; }), "both have id 3");
  EXPECT_HAS(refusal_of([](J j) { j["added_tokens"][0]["content"] = ""; }), "added_tokens[0].content: expected a text");
  EXPECT_HAS(refusal_of([](J j) { j["added_tokens"].push_back(j["added_tokens"][0]); }), "stands in the list before");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["vocab"]["<|endoftext|>"] = 3; }),
             "model.vocab: '<|endoftext|>' has id 3, in added_tokens ");
}

TEST(TokenizerJson, TokensThatAreNoBytesAndBytesThatAreNoTokens) {
  using J = Json&;
  const auto renamed = [](const char* from, const char* to) {
    return refusal_of([&](J j) {
      j["model"]["vocab"][to] = j["model"]["vocab"][from];
      j["model"]["vocab"].erase(from);
    });
  };
  EXPECT_HAS(renamed("ab", "東"), "model.vocab: '東' is not spelled in the characters of ByteLevel");
  EXPECT_HAS(renamed("ab", "a b"), "is not spelled in the characters");
  EXPECT_HAS(renamed("ab", ""), "'' is not spelled");
  EXPECT_HAS(renamed("Z", "ZZ"), "model.vocab: byte 90 is missing ('Z')");
}

TEST(TokenizerJson, MergesOfUnknownTokens) {
  using J = Json&;
  const auto merge = [](const Json& value) { return refusal_of([&](J j) { j["model"]["merges"][0] = value; }); };
  EXPECT_HAS(merge({"a", "nothing"}), "model.merges[0]: 'nothing' is no token of model.vocab");
  EXPECT_HAS(merge("a Z"), "model.merges[0]: 'aZ' is no token of model.vocab");
  EXPECT_HAS(merge("<|endoftext|> a"), "'<|endoftext|>' is no token");
  EXPECT_HAS(merge("ab"), "model.merges[0]: expected \"a b\", found \"ab\"");
  EXPECT_HAS(merge("a b c"), "expected \"a b\"");
  EXPECT_HAS(merge(Json::array({"a"})), "expected \"a b\" or [\"a\", \"b\"], found a list of 1");
  EXPECT_HAS(merge(7), "or [\"a\", \"b\"], found 7");
  EXPECT_HAS(refusal_of([](J j) { j["model"]["merges"].push_back(j["model"]["merges"][2]); }),
             "is the same as model.merges[2]");
}

TEST(TokenizerJson, RandomDamageIsRefusedOrReadNeverACrash) {
  const std::string whole = small_json().dump();
  test::Draws draws(9);
  int64_t refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = whole;
    for (int64_t edits = draws.between(1, 3); edits > 0; --edits) {
      const size_t at = static_cast<size_t>(draws.below(static_cast<int64_t>(text.size())));
      if (draws.chance(0.4)) text.erase(at, static_cast<size_t>(draws.between(1, 40)));
      if (draws.chance(0.5)) text[std::min(at, text.size() - 1)] = static_cast<char>(draws.below(256));
      if (draws.chance(0.1)) text.resize(at + 1);
    }
    try {
      parse_tokenizer_json(text, "t.json");
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace loom
