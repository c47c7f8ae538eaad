#pragma once
// Saving on many ranks, behind their backs. A thread of each rank copies what the rank writes into host memory, which
// training waits for only when it is about to change it (CheckFreq, FAST 2021), and then writes the rank's file; the
// ranks' threads tell each other sizes and checksums, and rank 0 writes the manifest, gives the folder its name and
// removes old checkpoints. An error on any rank is an error on all of them.
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/host_buffer.h"
#include "core/checkpoint/part.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/save_plan.h"
#include "core/comm/communicator.h"

namespace loom {

// Equal on all ranks.
struct WriterOptions {
  bool async = true;  // false: save() returns when the checkpoint is there, and nothing is copied
  int64_t keep = 0;   // newest checkpoints that stay; 0 = all
};

struct WriterStats {
  int64_t saves = 0;           // begun
  int64_t plans = 0;           // that ranks had to talk about; the others took the one before
  int64_t snapshot_bytes = 0;  // host memory that is kept for copies
  double stall_seconds = 0;    // of the last save: save(), the wait for the one before included, and wait_copied()
  double disk_seconds = 0;     // from the beginning of a save until it was on disk, of the last one that poll() saw
};

class CheckpointWriter {
 public:
  // All ranks together; `run_dir` is rank 0's. The communicator must outlive the writer.
  CheckpointWriter(Communicator& comm, const std::string& run_dir, const WriterOptions& options);
  // Waits for a save under way. An error that nobody asked for becomes a warning.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins to save step N; all ranks call it, rank 0 with the manifest's `extra`. Waits for an earlier save, whose
  // error it throws. The tensors must not change before wait_copied() has returned.
  void save(int64_t step, const std::vector<NamedTensor>& tensors, const std::string& extra_json = "{}");
  // Waits until the tensors of the last save() may change; throws nothing.
  void wait_copied();
  // True when a save has ended since the last call; throws its error; does not wait. Once per step.
  bool poll();
  // Waits for the save under way and throws its error.
  void finish();
  bool busy() const { return running_.valid(); }

  const WriterStats& stats() const { return stats_; }
  const SavePlan& plan() const { return plan_; }

 private:
  // What this rank writes, in the order of its file.
  struct Own {
    size_t tensor = 0;  // index into what save() is given
    std::string key;
  };
  struct Work {
    int64_t step = 0;
    std::string extra;
    std::vector<KeyedTensor> data;
  };
  void make_plan(const std::vector<NamedTensor>& tensors);
  // Memory for copies of these.
  std::vector<KeyedTensor> slices(const std::vector<KeyedTensor>& tensors, bool pinned);
  void write(const Work& work);
  std::string write_own_file(const std::string& folder, const Work& work) const;
  void write_manifest(const std::string& folder, const Work& work, const std::vector<std::string>& files) const;

  Communicator& comm_;
  std::unique_ptr<Communicator> sibling_;  // of the thread that writes
  WriterOptions options_;
  std::string run_dir_;
  std::vector<TensorPart> planned_;  // what this rank held when the plan was made
  SavePlan plan_;
  std::vector<Own> own_;
  HostBuffer buffer_;
  WriterStats stats_;
  std::shared_future<void> copied_;
  std::future<double> running_;  // seconds
};

}  // namespace loom
