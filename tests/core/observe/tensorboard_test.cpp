// Event files byte for byte; the golden bytes are those that the PyPI package `tensorboard` writes for the same events.
#include "core/observe/tensorboard.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::file_count;
using test::message_of;
using test::slurp;
using test::TempFolder;

std::string hex(const std::string& bytes) {
  static const char* const digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

double fixed_clock() { return 1700000000.25; }

const std::string kVersionRecord = "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9";

TEST(TensorBoard, Checksum) {
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5u);
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
  // 32 zero bytes have the CRC-32C 8a9136aa (RFC 3720).
  const uint32_t crc = 0x8a9136aau;
  EXPECT_EQ(masked_crc32c(std::string(32, '\0')), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST(TensorBoard, BytesOfAFreshRun) {
  TempFolder folder;
  TensorBoardWriter writer(folder.path(), 0, fixed_clock);
  EXPECT_NE(writer.path().find("/events.out.tfevents.1700000000."), std::string::npos);
  EXPECT_EQ(hex(slurp(writer.path())), kVersionRecord);
  writer.scalars(300, {{"train/loss", 0.5}, {"train/lr", -0.0}});
  EXPECT_EQ(hex(slurp(writer.path())), kVersionRecord) << "written before flush()";
  writer.flush();
  EXPECT_EQ(hex(slurp(writer.path())), kVersionRecord +
                                           "3200000000000000241956ec0900001040fc54d94110ac022a240a110a0a747261696e2f6c6"
                                           "f7373150000003f0a0f0a08747261696e2f6c72150000008065d3e6fa");
}

TEST(TensorBoard, BytesOfTextPictureAndRestart) {
  TempFolder folder;
  TensorBoardWriter writer(folder.path(), 13, fixed_clock);
  const std::string begin = kVersionRecord + "0f000000000000006d532b090900001040fc54d941100d3a02080194270020";
  EXPECT_EQ(hex(slurp(writer.path())), begin);
  writer.text(2, "recipe", "hi");
  writer.flush();
  const std::string text =
      "2d000000000000003c418afb0900001040fc54d94110022a200a1e0a06726563697065420808071200420268694a0a0a060a"
      "04746578742002c49f3df0";
  EXPECT_EQ(hex(slurp(writer.path())), begin + text);
  const std::string png = std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x04\0\0\0\x03", 24);
  writer.picture(2, "p", png, "cap");
  writer.flush();
  // Height 3 and width 4 are read from the picture's own header.
  EXPECT_NE(hex(slurp(writer.path()))
                .find("080310041803" + std::string("2218") + hex(png) + "4a0f0a080a06696d616765731a03636170"),
            std::string::npos);
}

TEST(TensorBoard, ALaterFileSortsBehindAnEarlierOne) {
  TempFolder folder;
  const TensorBoardWriter first(folder.path(), 0, fixed_clock);
  const TensorBoardWriter second(folder.path(), 5, fixed_clock);
  const TensorBoardWriter third(folder.path(), 7, [] { return 1600000000.0; });  // the clock went back
  EXPECT_LT(first.path(), second.path());
  EXPECT_LT(second.path(), third.path());
  EXPECT_EQ(file_count(folder.path()), 3u);
}

TEST(TensorBoard, TagsOfMetrics) {
  for (const auto& [metric, tag] :
       std::vector<std::pair<std::string, std::string>>{{"loss", "train/loss"},
                                                        {"lr", "train/lr"},
                                                        {"grad_norm", "train/grad_norm"},
                                                        {"tokens_per_second", "train/tokens_per_second"},
                                                        {"data_seconds", "train/data_wait"},
                                                        {"time/gemm", "time/gemm"},
                                                        {"eval_loss", "eval/loss"},
                                                        {"eval_seconds", "eval/seconds"},
                                                        {"exact_match", "eval/exact_match"},
                                                        {"token_accuracy", "eval/token_accuracy"},
                                                        {"rss_peak", "memory/rss_peak"},
                                                        {"loss/router", "train/loss/router"},
                                                        {"something_new", "train/something_new"}})
    EXPECT_EQ(tensorboard_tag(metric), tag);
}

TEST(TensorBoard, AMetricsLineWithoutItsWords) {
  TempFolder folder;
  TensorBoardWriter writer(folder.path(), 0, fixed_clock), other(folder.path(), 0, fixed_clock);
  MetricsLine line{3, {}};
  line.add("loss", 2.5).add("note", std::string("x")).add("tokens", int64_t{70000}).add("eval_loss", std::nan(""));
  writer.metrics(line);
  writer.flush();
  other.scalars(3, {{"train/loss", 2.5}, {"train/tokens", 70000}, {"eval/loss", std::nan("")}});
  other.flush();
  EXPECT_EQ(slurp(writer.path()), slurp(other.path()));
}

TEST(TensorBoard, AFolderThatIsNotThere) {
  TempFolder folder;
  EXPECT_NE(message_of<EnvironmentError>([&] { TensorBoardWriter(folder / "none"); }).find("cannot create"),
            std::string::npos);
}

// A limit on the size of files stands for a full disk.
TEST(TensorBoard, AFailedWriteLeavesCompleteRecords) {
  TempFolder folder;
  TensorBoardWriter writer(folder.path(), 0, fixed_clock);
  writer.scalars(1, {{"a", 1}});
  writer.flush();
  const std::string before = slurp(writer.path());
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  struct rlimit tight = old;
  tight.rlim_cur = before.size() + 10;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  writer.scalars(2, {{"a", 2}});
  const std::string message = message_of<EnvironmentError>([&] { writer.flush(); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find(writer.path()), std::string::npos);
  EXPECT_EQ(slurp(writer.path()), before);
  writer.scalars(3, {{"a", 3}});
  writer.flush();
  EXPECT_EQ(slurp(writer.path()).substr(0, before.size()), before);
  EXPECT_EQ(slurp(writer.path()).size(), 2 * before.size() - 40);
}

}  // namespace
}  // namespace loom
