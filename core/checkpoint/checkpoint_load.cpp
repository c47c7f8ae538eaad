// First every rank checks what it asks for and its share of the files, and all of them learn what is wrong; only then
// the first byte of a tensor changes. Reading goes through the boxes in an order that all ranks share, with a few
// exchanges under way while the next boxes are read.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <deque>
#include <map>
#include <tuple>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/checkpoint/box_view.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/load_plan.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/together.h"

namespace loom {
namespace {

constexpr size_t kMostExchanges = 16;  // under way at once

std::string and_more(size_t others) { return others == 0 ? "" : concat(" (and ", others, " more)"); }

void check_names(const std::string& folder, const Manifest& manifest, const std::vector<NamedTensor>& tensors,
                 Unasked unasked) {
  std::vector<std::string> stored, wanted, missing, unknown;
  std::map<std::string, bool> asked;  // as a part?
  for (const auto& [name, tensor] : manifest.tensors) stored.push_back(name);
  for (const NamedTensor& tensor : tensors) {
    const bool part = !tensor.box.size.empty();
    const auto [first, fresh] = asked.emplace(tensor.name, part);
    LOOM_CHECK(fresh || (part && first->second), "tensor ", tensor.name, " asked for twice");
    if (!fresh) continue;
    wanted.push_back(tensor.name);
    if (manifest.tensors.count(tensor.name) == 0) missing.push_back(tensor.name);
  }
  for (const std::string& name : stored) {
    if (asked.count(name) == 0) unknown.push_back(name);
  }
  LOOM_CHECK_USER(missing.empty(), folder, ": has no tensor '", missing.front(), "', which this model needs",
                  and_more(missing.size() - 1), did_you_mean(missing.front(), unknown.empty() ? stored : unknown));
  LOOM_CHECK_USER(unasked == Unasked::ignore || unknown.empty(), folder, ": holds tensor '", unknown.front(),
                  "', which this model does not have", and_more(unknown.size() - 1),
                  did_you_mean(unknown.front(), wanted));
}

// Sizes and checksums of this rank's share of the files.
void check_files(const Communicator& comm, const std::string& folder, const Manifest& manifest, bool verify,
                 LoadStats& stats) {
  int turn = 0;
  for (const auto& [name, file] : manifest.files) {
    if (turn++ % comm.world() != comm.rank()) continue;
    const std::string damage = file_damage(folder, name, file);
    LOOM_CHECK_USER(damage.empty(), damage, "; the checkpoint is damaged, use an earlier one");
    if (!verify) continue;
    const WrittenFile found = scan_file(folder + "/" + name);
    stats.bytes_verified += found.bytes;
    LOOM_CHECK_USER(found.crc32 == file.crc32, folder, "/", name,
                    ": damaged: its checksum differs from the manifest's; use an earlier checkpoint");
  }
}

void check_tensors(StoredTensors& stored, const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& wanted : tensors) {
    const StoredTensor& found = stored.manifest().tensors.at(wanted.name);
    const at::ScalarType dtype = wanted.tensor.scalar_type();
    const std::vector<int64_t> shape =
        wanted.box.size.empty() && wanted.held ? wanted.tensor.sizes().vec() : wanted.shape;
    LOOM_CHECK_USER(found.dtype == dtype && found.shape == shape, stored.folder(), ": tensor '", wanted.name, "' is ",
                    type_and_shape(found.dtype, found.shape), "; this model has ", type_and_shape(dtype, shape));
    if (holds(wanted)) stored.check(wanted.name, part_of_tensor(wanted).box);
  }
}

// One box that is wanted: this rank's band from files, the others' from the ranks that read them.
class Reading {
 public:
  Reading(Communicator& comm, StoredTensors& stored, const WantedBox& wanted, const Tensor& tensor, LoadStats& stats)
      : home_(tensor) {
    const std::vector<std::optional<Box>> bands_of = bands(wanted);
    const Box& box = wanted.part.box;
    const bool direct = wanted.ranks.size() == 1 || (home_.is_cpu() && home_.is_contiguous());
    place_ = direct ? home_ : at::empty(box.size, home_.scalar_type());
    std::vector<Message> sends, receives;
    for (size_t member = 0; member < bands_of.size(); ++member) {
      if (!bands_of[member].has_value()) continue;
      const Box& band = *bands_of[member];
      const Tensor part = box_view(place_, band, box);
      if (wanted.ranks[member] != comm.rank()) {
        receives.push_back({wanted.ranks[member], part});
        stats.bytes_received += static_cast<int64_t>(part.nbytes());
        continue;
      }
      stats.bytes_read += stored.read(wanted.part.name, band, part);
      for (const int rank : wanted.ranks) {
        if (rank != comm.rank()) sends.push_back({rank, part});
      }
    }
    if (!sends.empty() || !receives.empty())
      pending_ = comm.exchange("checkpoint: " + wanted.part.name, sends, receives);
  }
  void finish() {
    pending_.wait();
    if (!place_.is_same(home_)) home_.copy_(place_);
  }

 private:
  Tensor home_, place_;
  Pending pending_;
};

void read_all(Communicator& comm, StoredTensors& stored, const std::vector<WantedBox>& wanted,
              const std::vector<NamedTensor>& tensors, LoadStats& stats) {
  const c10::NoGradGuard no_grad;
  std::map<std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>>, Tensor> homes;
  for (const NamedTensor& tensor : tensors) {
    if (!holds(tensor)) continue;
    const Box box = part_of_tensor(tensor).box;
    homes[{tensor.name, box.offset, box.size}] = tensor.tensor.detach();
  }
  std::deque<Reading> under_way;
  for (const WantedBox& box : wanted) {
    if (under_way.size() == kMostExchanges) {
      under_way.front().finish();
      under_way.pop_front();
    }
    const TensorPart& part = box.part;
    under_way.emplace_back(comm, stored, box, homes.at({part.name, part.box.offset, part.box.size}), stats);
  }
  for (Reading& reading : under_way) reading.finish();
}

}  // namespace

Manifest load_checkpoint(Communicator& comm, const std::string& folder, const std::vector<NamedTensor>& tensors,
                         const LoadOptions& options) {
  LoadStats unseen;
  LoadStats& stats = options.stats != nullptr ? *options.stats : unseen;
  std::unique_ptr<StoredTensors> stored;
  const std::vector<std::string> told = together(comm, "checkpoint: checks", [&] {
    LOOM_CHECK_USER(is_folder(folder), folder, ": no such checkpoint folder");
    LOOM_CHECK_USER(is_file(folder + "/" + kManifestName), folder, ": no ", kManifestName,
                    "; the checkpoint is damaged, use an earlier one");
    stored = std::make_unique<StoredTensors>(folder, read_manifest(folder));
    check_names(folder, stored->manifest(), tensors, options.unasked);
    check_files(comm, folder, stored->manifest(), options.verify, stats);
    check_tensors(*stored, tensors);
    return parts_text(parts_held(tensors));
  });
  std::vector<std::vector<TensorPart>> wanted_by_rank;
  for (const std::string& text : told) wanted_by_rank.push_back(parse_parts(text));
  read_all(comm, *stored, plan_load(wanted_by_rank, comm.rank()), tensors, stats);
  return stored->manifest();
}

Manifest load_checkpoint(const std::string& folder, const std::vector<NamedTensor>& tensors,
                         const LoadOptions& options) {
  return load_checkpoint(alone(), folder, tensors, options);
}

}  // namespace loom
