#pragma once
// Saving from one process and loading on any number of ranks. What many ranks save together goes through
// checkpoint_writer.h; both write the same folders (folders.h).
#include <cstdint>
#include <string>
#include <vector>

#include "core/checkpoint/folders.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/part.h"
#include "core/comm/communicator.h"

namespace loom {

// Writes step-N from whole tensors, replacing an existing one of that step at once. Returns the folder.
// EnvironmentError (with path and "disk full" or the system's words) leaves everything saved before as it was. Also
// removes what crashed saves left behind.
std::string save_checkpoint(const std::string& run_dir, int64_t step, const std::vector<NamedTensor>& tensors,
                            const std::string& extra_json = "{}");

// What to do with tensors of a checkpoint that nobody asked for.
enum class Unasked { refuse = 1, ignore };

// Of this rank.
struct LoadStats {
  int64_t bytes_read = 0;      // of tensors, from files
  int64_t bytes_received = 0;  // of tensors, from ranks that want the same and read it
  int64_t bytes_verified = 0;  // of files, for their checksums
};

struct LoadOptions {
  Unasked unasked = Unasked::refuse;
  bool verify = true;  // checksums of all files, each by one rank
  LoadStats* stats = nullptr;
};

// Fills the tensors by name (several parts of one are allowed), under whatever layout they were saved; nothing is
// changed unless on all ranks all names, dtypes, shapes and checksums agree. All ranks call it and find the same
// mistake: a UserError in one line, with the nearest name. A box that several ranks want is read once, by rows, and
// exchanged. Returns the manifest, whose `extra` holds everything else.
Manifest load_checkpoint(Communicator& comm, const std::string& folder, const std::vector<NamedTensor>& tensors,
                         const LoadOptions& options = {});
// The same for a rank that loads by itself.
Manifest load_checkpoint(const std::string& folder, const std::vector<NamedTensor>& tensors,
                         const LoadOptions& options = {});

}  // namespace loom
