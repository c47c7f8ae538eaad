// Where samples lie in a file: lines or an array, whatever the chunks, the line ends and the file's name.
#include "core/data/text_lines.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "core/base/error.h"
#include "tests/core/checkpoint/files.h"

namespace loom {
namespace {

using test::line_of;
using test::TempFolder;
using test::write_bytes;

// The samples as text with their lines, fed in chunks.
std::string found(const std::string& text, size_t chunk) {
  TextScanner scanner("x.json");
  scanner.feed(std::string_view(text).substr(0, std::max<size_t>(chunk, 4)));
  for (size_t at = std::max<size_t>(chunk, 4); at < text.size(); at += chunk)
    scanner.feed(std::string_view(text).substr(at, chunk));
  std::string out;
  for (const TextRange& range : scanner.finish())
    out += concat(range.line, ":", text.substr(range.begin, range.length), "|");
  return out;
}

void expect_found(const std::string& text, const std::string& expected) {
  for (const size_t chunk : {1, 2, 3, 5, 7, 64, 100000}) EXPECT_EQ(found(text, chunk), expected) << "chunk " << chunk;
}

std::string refused(const std::string& text) {
  return line_of<UserError>([&] { found(text, 100000); });
}

TEST(TextScanner, Lines) {
  expect_found("{\"a\":1}\n{\"b\":2}\n", "1:{\"a\":1}|2:{\"b\":2}|");
  expect_found("{\"a\":1}\n{\"b\":2}", "1:{\"a\":1}|2:{\"b\":2}|");
  expect_found("\xef\xbb\xbf{1}\r\n\r\n  {2}  \r\n\n\n{3}\r\n", "1:{1}|3:{2}|6:{3}|");
  expect_found("\n\n   {1}\n", "3:{1}|");
  expect_found("{[}\n\"x\n", "1:{[}|2:\"x|");  // a line is a sample, whatever it holds
  expect_found("", "");
  expect_found("  \n\r\n\t\n", "");
}

TEST(TextScanner, AnArrayIsKnownByItsFirstCharacter) {
  expect_found("[{\"a\":1},{\"b\":[1,{\"c\":2}]}]", "1:{\"a\":1}|1:{\"b\":[1,{\"c\":2}]}|");
  expect_found("\xef\xbb\xbf\r\n [\r\n  {\"a\":\r\n 1},\r\n\r\n  {\"b\":2}\r\n]\r\n", "3:{\"a\":\r\n 1}|6:{\"b\":2}|");
  expect_found(R"([{"a":"],}[{\"]"},"\\", 7 ,{"b":"\\\"]"}])", R"(1:{"a":"],}[{\"]"}|1:"\\"|1:7|1:{"b":"\\\"]"}|)");
  expect_found("[]", "");
  expect_found(" [ \n ] \n", "");
}

TEST(TextScanner, BrokenFilesAreOneLine) {
  EXPECT_HAS(refused("[{\"a\":1},\n{\"b\":2"), "x.json:2: the sample that begins here is never closed");
  EXPECT_HAS(refused("[{\"a\":1}\n,{\"b\":\"2}]\n"), "x.json:2: the sample that begins here is never closed");
  EXPECT_HAS(refused("[{\"a\":1}\n"), "x.json:2: the array is never closed");
  EXPECT_HAS(refused("[{\"a\":1},\n]"), "x.json:2: expected a sample before ']'");
  EXPECT_HAS(refused("[{\"a\":1},\n,{}]"), "x.json:2: expected a sample before ','");
  EXPECT_HAS(refused("[{}]\n{}"), "x.json:2: text after the end of the array");
  EXPECT_HAS(refused("[}]"), "x.json:1: '}' closes what was never opened");
  EXPECT_HAS(refused(std::string("\xff\xfe{\0", 4)), "x.json:1: the text is UTF-16; expected UTF-8");
  EXPECT_HAS(refused("\x1f\x8b\x08..."), "packed with gzip");
  EXPECT_HAS(refused("PAR1...."), "Parquet");
}

TEST(TextLines, ReadsSamplesFromManyThreads) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += "{\"n\": " + std::to_string(i) + ", \"x\": \"" + std::string(i % 700, 'y') + "\"}\r\n";
  write_bytes(folder / "a.jsonl", text);
  const TextLines lines(folder / "a.jsonl");
  ASSERT_EQ(lines.size(), 3000);
  EXPECT_EQ(lines.line(2999), 3000);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = static_cast<int64_t>(t); i < 3000; i += 2)
        wrong[t] += lines.read(i).rfind("{\"n\": " + std::to_string(i) + ",", 0) == 0 ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(TextLines, ALineOfTenMegabytes) {
  const TempFolder folder;
  const std::string longest = "{\"text\": \"" + std::string(10'000'000, 'x') + "\"}";
  write_bytes(folder / "a.jsonl", "{\"text\": \"a\"}\n" + longest + "\n{\"text\": \"b\"}\n");
  const TextLines lines(folder / "a.jsonl");
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines.read(1), longest);
  EXPECT_EQ(lines.read(2), "{\"text\": \"b\"}");
}

TEST(TextLines, FilesThatAreMissingEmptyOrCutOffLater) {
  const TempFolder folder;
  write_bytes(folder / "doors.jsonl", "{}\n{\"a\": 1}\n");
  EXPECT_EQ(
      line_of<UserError>([&] { TextLines(folder / "dors.jsonl", "r.yaml:3: "); }),
      "r.yaml:3: " + (folder / "dors.jsonl") + ": no such file; did you mean '" + (folder / "doors.jsonl") + "'?");
  write_bytes(folder / "empty.jsonl", "");
  EXPECT_HAS(line_of<UserError>([&] { TextLines(folder / "empty.jsonl"); }), "empty.jsonl: holds no sample");
  write_bytes(folder / "blank.jsonl", "\xef\xbb\xbf\n \r\n");
  EXPECT_HAS(line_of<UserError>([&] { TextLines(folder / "blank.jsonl"); }), "blank.jsonl: holds no sample");
  EXPECT_HAS(line_of<UserError>([&] { TextLines lines(folder.path()); }), ": is a folder; expected a file");
  const TextLines lines(folder / "doors.jsonl");
  std::filesystem::resize_file(folder / "doors.jsonl", 5);
  EXPECT_EQ(lines.read(0), "{}");
  EXPECT_HAS(line_of<UserError>([&] { lines.read(1); }), "doors.jsonl:2: the file became shorter");
}

}  // namespace
}  // namespace loom
