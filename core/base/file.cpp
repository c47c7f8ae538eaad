// POSIX calls instead of streams: fsync, and an errno that belongs to the call that failed.
#include "core/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"

namespace loom {
namespace {

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int close() {
    int result = ::close(value_);
    value_ = -1;
    return result;
  }

 private:
  int value_;
};

// Removes a temporary file unless it was renamed into place.
class Leftover {
 public:
  explicit Leftover(std::string path) : path_(std::move(path)) {}
  ~Leftover() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;
  void keep() { path_.clear(); }

 private:
  std::string path_;
};

std::string folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

std::string errno_text(int error) {
  if (error == ENOSPC || error == EDQUOT) return "disk full";
  return std::generic_category().message(error);
}

void throw_file_error(const std::string& action, const std::string& path, int error) {
  throw EnvironmentError(concat("cannot ", action, " ", path, ": ", errno_text(error)));
}

void write_fully(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_file_error("write", path, errno);
    }
    if (written == 0) throw_file_error("write", path, EIO);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string read_text(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    int error = errno;
    if (error == ENOENT) throw UserError(path + ": no such file");
    if (error == EACCES || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP) {
      throw UserError(concat(path, ": cannot be read: ", errno_text(error)));
    }
    throw_file_error("open", path, error);
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_file_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) throw UserError(path + ": is a folder; expected a file");
  std::string text;
  if (info.st_size > 0) text.reserve(static_cast<std::size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_file_error("read", path, errno);
    }
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

void write_file_atomic(const std::string& path, std::string_view bytes) {
  static std::atomic<unsigned> counter{0};
  std::string temporary = concat(path, ".tmp-", ::getpid(), "-", counter++);
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) throw_file_error("create", path, errno);
  Leftover leftover(temporary);
  write_fully(file.get(), bytes, path);
  if (::fsync(file.get()) != 0) throw_file_error("write", path, errno);
  if (file.close() != 0) throw_file_error("write", path, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw_file_error("replace", path, errno);
  leftover.keep();
  fsync_dir(folder_of(path));
}

void fsync_dir(const std::string& folder) {
  Descriptor handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.get() < 0) throw_file_error("open folder", folder, errno);
  // Some file systems cannot sync a folder and say EINVAL; there is nothing more to do on those.
  if (::fsync(handle.get()) != 0 && errno != EINVAL) throw_file_error("sync folder", folder, errno);
}

void make_dirs(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_file_error("create folder", folder, error.value());
  if (!is_folder(folder)) throw_file_error("create folder", folder, ENOTDIR);
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace loom
