// The plan is made from what all ranks say they hold, once; later saves compare what they hold with it and exchange
// nothing but the folder's name, sizes and checksums. The three steps of a save (folder, files, manifest) each end with
// the same outcome on all ranks (together.h).
#include "core/checkpoint/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/gpu.h"
#include "core/base/log.h"
#include "core/checkpoint/folders.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/together.h"
#include "core/comm/texts.h"

namespace loom {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// By this thread alone: a pool of threads would take cores from training.
void copy_tensors(const std::vector<KeyedTensor>& from, const std::vector<KeyedTensor>& to) {
  const c10::NoGradGuard no_grad;
  bool on_gpu = false;
  for (size_t i = 0; i < from.size(); ++i) {
    const Tensor& tensor = from[i].tensor;
    if (tensor.is_cpu() && tensor.is_contiguous()) {
      std::memcpy(to[i].tensor.mutable_data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
    } else {
      to[i].tensor.copy_(tensor, /*non_blocking=*/tensor.is_cuda());
      on_gpu = on_gpu || tensor.is_cuda();
    }
  }
  if (on_gpu) synchronize_gpu();
}

// A rank that writes nothing has no file, and says so with no text.
std::string to_text(const WrittenFile& file) { return concat(file.bytes, ' ', file.crc32); }

StoredFile from_text(const std::string& text) {
  const size_t space = text.find(' ');
  return {std::stoll(text.substr(0, space)), static_cast<uint32_t>(std::stoul(text.substr(space + 1)))};
}

}  // namespace

CheckpointWriter::CheckpointWriter(Communicator& comm, const std::string& run_dir, const WriterOptions& options)
    : comm_(comm),
      sibling_(comm.sibling("checkpoint")),
      options_(options),
      run_dir_(comm.broadcast("checkpoint: run folder", world_group(comm.world()), 0, run_dir)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    finish();
  } catch (const std::exception& error) {
    log_warn(error.what());
  }
}

void CheckpointWriter::save(int64_t step, const std::vector<NamedTensor>& tensors, const std::string& extra_json) {
  const auto begin = std::chrono::steady_clock::now();
  finish();
  ++stats_.saves;
  if (stats_.plans == 0 || parts_held(tensors) != planned_) make_plan(tensors);
  std::vector<KeyedTensor> mine;
  for (const Own& own : own_) mine.push_back({own.key, tensors[own.tensor].tensor});
  if (options_.async) {
    // Memory is taken here, so that a lack of it is an error of save().
    const bool on_gpu =
        std::any_of(mine.begin(), mine.end(), [](const KeyedTensor& each) { return each.tensor.is_cuda(); });
    Work work{step, extra_json, slices(mine, on_gpu)};
    // A GPU copies in the order of its stream, which training is waiting behind anyway.
    copied_ = std::async(on_gpu ? std::launch::deferred : std::launch::async, copy_tensors, mine, work.data).share();
    if (on_gpu) copied_.wait();
    running_ = std::async(std::launch::async, [this, begin, work = std::move(work), copied = copied_] {
      copied.get();
      write(work);
      return seconds_since(begin);
    });
  } else {
    write({step, extra_json, std::move(mine)});
  }
  stats_.stall_seconds = seconds_since(begin);
}

void CheckpointWriter::wait_copied() {
  if (!copied_.valid()) return;
  const auto begin = std::chrono::steady_clock::now();
  copied_.wait();
  stats_.stall_seconds += seconds_since(begin);
}

bool CheckpointWriter::poll() {
  if (!running_.valid() || running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  stats_.disk_seconds = running_.get();
  return true;
}

void CheckpointWriter::finish() {
  if (running_.valid()) running_.get();
}

void CheckpointWriter::make_plan(const std::vector<NamedTensor>& tensors) {
  const std::vector<TensorPart> held = parts_held(tensors);
  std::vector<std::vector<TensorPart>> held_by_rank;
  for (const std::string& text : exchange_texts(comm_, "checkpoint: what ranks hold", parts_text(held)))
    held_by_rank.push_back(parse_parts(text));
  plan_ = plan_save(held_by_rank);
  std::map<std::string, std::vector<size_t>> of_name;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (holds(tensors[i])) of_name[tensors[i].name].push_back(i);
  }
  own_.clear();
  for (const PlannedBox& planned : plan_.boxes) {
    if (planned.writer != comm_.rank()) continue;
    for (const size_t i : of_name.at(planned.part.name)) {
      if (part_of_tensor(tensors[i]).box == planned.part.box) own_.push_back({i, planned.key});
    }
  }
  // Larger elements first: slices of the buffer are then aligned.
  std::stable_sort(own_.begin(), own_.end(), [&](const Own& a, const Own& b) {
    return tensors[a.tensor].tensor.element_size() > tensors[b.tensor].tensor.element_size();
  });
  planned_ = held;
  ++stats_.plans;
}

std::vector<KeyedTensor> CheckpointWriter::slices(const std::vector<KeyedTensor>& tensors, bool pinned) {
  const Tensor memory = buffer_.take(plan_.bytes[static_cast<size_t>(comm_.rank())], pinned);
  stats_.snapshot_bytes = buffer_.bytes();
  std::vector<KeyedTensor> out;
  int64_t at = 0;
  for (const KeyedTensor& each : tensors) {
    const auto bytes = static_cast<int64_t>(each.tensor.nbytes());
    out.push_back({each.key, memory.narrow(0, at, bytes).view(each.tensor.scalar_type()).view(each.tensor.sizes())});
    at += bytes;
  }
  return out;
}

void CheckpointWriter::write(const Work& work) {
  const bool leader = comm_.rank() == 0;
  std::string made;  // the temporary folder, on the rank that made it
  try {
    const std::string folder = together(*sibling_, "checkpoint: folder", [&] {
      if (leader) made = begin_folder(run_dir_, work.step);
      return made;
    })[0];
    const std::vector<std::string> files =
        together(*sibling_, "checkpoint: files", [&] { return write_own_file(folder, work); });
    together(*sibling_, "checkpoint: manifest", [&] {
      if (leader) write_manifest(folder, work, files);
      return std::string();
    });
  } catch (const EnvironmentError& problem) {
    if (!made.empty()) remove_quietly(made);
    throw EnvironmentError(
        concat("step ", work.step, " was not saved: ", problem.what(), "; checkpoints saved before are intact"));
  } catch (...) {
    if (!made.empty()) remove_quietly(made);
    throw;
  }
  if (options_.keep <= 0) return;
  together(*sibling_, "checkpoint: old ones", [&] {
    if (leader) prune_checkpoints(run_dir_, options_.keep);
    return std::string();
  });
}

std::string CheckpointWriter::write_own_file(const std::string& folder, const Work& work) const {
  if (work.data.empty()) return "";
  LOOM_CHECK_USER(is_folder(folder), folder, ": rank ", comm_.rank(),
                  " does not see this folder, which rank 0 made; all ranks must share the file system of a run");
  return to_text(write_safetensors(concat(folder, "/", rank_file(comm_.rank())), work.data, {{"format", "pt"}}));
}

void CheckpointWriter::write_manifest(const std::string& folder, const Work& work,
                                      const std::vector<std::string>& files) const {
  Manifest manifest;
  manifest.step = work.step;
  manifest.world = comm_.world();
  manifest.extra = work.extra;
  for (size_t rank = 0; rank < files.size(); ++rank) {
    if (files[rank].empty()) continue;
    const std::string name = rank_file(static_cast<int>(rank));
    const StoredFile& file = manifest.files[name] = from_text(files[rank]);
    const std::string damage = file_damage(folder, name, file);  // a machine with a folder of its own
    if (!damage.empty()) throw EnvironmentError(concat(damage, ", as rank 0 sees it; do all ranks share this folder?"));
  }
  for (const PlannedBox& box : plan_.boxes) {
    StoredTensor& stored = manifest.tensors[box.part.name];
    stored.dtype = box.part.dtype;
    stored.shape = box.part.shape;
    stored.boxes.push_back({rank_file(box.writer), box.key, box.part.box});
  }
  write_file_atomic(folder + "/" + kManifestName, manifest_json(manifest));
  publish_folder(folder, run_dir_, work.step);
}

}  // namespace loom
