// Answers of evaluations on disk: nothing twice, nothing from steps that were taken back, pictures once.
#include "pipelines/sample_log.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "pipelines/png.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::slurp;
using test::TempFolder;

EvalSample answer(const std::string& name, const std::string& output) {
  EvalSample sample;
  sample.name = name;
  sample.prompt = "what?";
  sample.truth = "bag";
  sample.output = output;
  sample.picture = at::full({6, 5, 3}, 70, at::kByte);
  sample.correct = output == "bag";
  return sample;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(SampleLog, NewestFirstAndAPictureOnce) {
  TempFolder folder;
  SampleLog log(folder / "s.jsonl");
  log.append(20, {answer("a", "coat"), answer("b", "bag")});
  log.append(40, {answer("a", "bag")});
  EXPECT_EQ(count(slurp(folder / "s.jsonl"), "\"picture\""), 2u);
  for (const SampleLog& read : {log, SampleLog(folder / "s.jsonl")}) {
    const std::vector<ReportSample> samples = read.samples();
    ASSERT_EQ(samples.size(), 2u);
    EXPECT_EQ(samples[0].name, "a");
    EXPECT_EQ(samples[0].prompt, "what?");
    EXPECT_EQ(samples[0].truth, "bag");
    ASSERT_EQ(samples[0].outputs.size(), 2u);
    EXPECT_EQ(samples[0].outputs[0].step, 40);
    EXPECT_EQ(samples[0].outputs[0].text, "bag");
    EXPECT_TRUE(samples[0].outputs[0].correct);
    EXPECT_FALSE(samples[0].outputs[1].correct);
    EXPECT_EQ(samples[0].png, encode_png(at::full({6, 5, 3}, 70, at::kByte)));
    EXPECT_EQ(samples[1].name, "b");
  }
}

TEST(SampleLog, LaterStepsAreForgottenOnResume) {
  TempFolder folder;
  SampleLog log(folder / "s.jsonl");
  log.append(20, {answer("a", "coat")});
  log.append(40, {answer("a", "bag"), answer("b", "bag")});
  log.truncate_after(30);
  ASSERT_EQ(log.samples().size(), 1u);
  EXPECT_EQ(log.samples()[0].outputs.size(), 1u);
  EXPECT_FALSE(log.samples()[0].png.empty());
  log.append(40, {answer("b", "shirt")});
  EXPECT_FALSE(SampleLog(folder / "s.jsonl").samples()[0].png.empty()) << "its picture went with the steps taken back";
}

TEST(SampleLog, TheSameStepAgainReplaces) {
  TempFolder folder;
  SampleLog log(folder / "s.jsonl");
  log.append(20, {answer("a", "coat")});
  log.add(20, {answer("a", "bag")});
  ASSERT_EQ(log.samples()[0].outputs.size(), 1u);
  EXPECT_EQ(log.samples()[0].outputs[0].text, "bag");
  EXPECT_EQ(count(slurp(folder / "s.jsonl"), "\n"), 1u) << "add() writes nothing";
}

TEST(SampleLog, TornForeignAndDamagedLines) {
  TempFolder folder;
  folder.write("s.jsonl",
               "[1]\nnot json\n{\"step\":1}\n{\"step\":1,\"name\":\"a\",\"output\":7,\"picture\":\"%%\"}\n"
               "{\"step\":2,\"name\":\"a\",\"output\":\"x\",\"correct\":true}\n{\"step\":3,\"name\":\"a\"");
  const std::vector<ReportSample> samples = SampleLog(folder / "s.jsonl").samples();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_TRUE(samples[0].png.empty());
  ASSERT_EQ(samples[0].outputs.size(), 2u);
  EXPECT_EQ(samples[0].outputs[0].text, "x");
  EXPECT_TRUE(SampleLog(folder / "none.jsonl").samples().empty());
}

TEST(SampleLog, AnswersThatAreNoText) {
  TempFolder folder;
  SampleLog log(folder / "s.jsonl");
  log.append(20, {answer("a", "\xff\xfe bag")});
  EXPECT_EQ(SampleLog(folder / "s.jsonl").samples()[0].outputs[0].text, "\xef\xbf\xbd\xef\xbf\xbd bag");
  EXPECT_THROW(SampleLog(folder / "no/s.jsonl").append(1, {answer("a", "b")}), EnvironmentError);
}

}  // namespace
}  // namespace loom
