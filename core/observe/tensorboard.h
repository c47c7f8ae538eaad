#pragma once
// Event files that TensorBoard reads: scalars, text and pictures. The format is a few dozen lines by hand (records with
// a masked CRC-32C around protobuf messages); a protobuf library in the process would meet the one inside LibTorch.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/observe/metrics.h"

namespace loom {

class TensorBoardWriter {
 public:
  // Begins a new file in the folder, named so that it sorts behind those that are there. With restart_at > 0 it tells
  // TensorBoard to forget what older files say of that step and later ones. clock: unix seconds; empty = the system's.
  // EnvironmentError.
  explicit TensorBoardWriter(const std::string& folder, int64_t restart_at = 0, std::function<double()> clock = {});
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  // Nothing is on disk before flush().
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  // All numbers of a line, under their tags.
  void metrics(const MetricsLine& line);
  void text(int64_t step, const std::string& tag, const std::string& markdown);
  // A PNG file's bytes. The description of a tag's first picture stays.
  void picture(int64_t step, const std::string& tag, const std::string& png, const std::string& description);
  // One write. On failure (EnvironmentError) the file ends with its last complete record.
  void flush();
  const std::string& path() const { return path_; }

 private:
  void add_event(int64_t step, int field, std::string_view message);

  std::string path_;
  std::function<double()> clock_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  std::string waiting_;
};

// Under which tag a number of metrics.jsonl is shown: "loss" is "train/loss", "eval_loss" is "eval/loss".
std::string tensorboard_tag(const std::string& metric);

// Exposed for tests: CRC-32C as the records hold it, and a record around its payload.
uint32_t masked_crc32c(std::string_view bytes);
std::string event_record(std::string_view payload);

}  // namespace loom
