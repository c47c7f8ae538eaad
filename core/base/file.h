#pragma once
// Files whose loss would hurt. Writing is always "temporary file beside it, fsync, rename, fsync of the folder", so
// that a kill or a full disk leaves the old content or the new one, never half of either. Failures carry the path and
// the system's words.
#include <string>
#include <string_view>

namespace loom {

// The whole file. UserError when it is missing, is a folder or may not be read; EnvironmentError when the disk fails.
std::string read_text(const std::string& path);
// Replaces path by bytes, durably and at once. EnvironmentError; the old content then still stands.
void write_file_atomic(const std::string& path, std::string_view bytes);
// Makes renames and new names inside the folder durable.
void fsync_dir(const std::string& folder);
// Creates the folder and its parents; an existing folder is fine.
void make_dirs(const std::string& folder);
bool is_file(const std::string& path);
bool is_folder(const std::string& path);

// "disk full" for ENOSPC and EDQUOT, else the system's text.
std::string errno_text(int error);
// EnvironmentError "cannot <action> <path>: <errno text>".
[[noreturn]] void throw_file_error(const std::string& action, const std::string& path, int error);
// Writes all bytes to an open descriptor, or throws the error above.
void write_fully(int descriptor, std::string_view bytes, const std::string& path);

}  // namespace loom
