#include "core/data/text_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/data/source_options.h"

namespace loom {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

// Fills `count` bytes from `offset`, or as many as there are.
size_t read_at(int descriptor, char* out, size_t count, uint64_t offset, const std::string& path) {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(descriptor, out + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error("read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace

TextLines::TextLines(std::string path, const std::string& where) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  const int error = errno;
  if (descriptor_ < 0 && error == ENOENT) throw UserError(concat(where, path_, ": no such file", near_path(path_)));
  if (descriptor_ < 0) throw UserError(concat(where, path_, ": cannot be read: ", errno_text(error)));
  try {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) throw_file_error("read", path_, errno);
    LOOM_CHECK_USER(S_ISREG(info.st_mode), where, path_, S_ISDIR(info.st_mode) ? ": is a folder" : ": is no file",
                    "; expected a file of JSON lines or one JSON array");
    scan();
    LOOM_CHECK_USER(!ranges_.empty(), where, path_, ": holds no sample; expected JSON lines or one JSON array");
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TextLines::~TextLines() { ::close(descriptor_); }

void TextLines::scan() {
  TextScanner scanner(path_);
  std::string chunk(kChunk, '\0');
  uint64_t offset = 0;
  while (true) {
    const size_t got = read_at(descriptor_, chunk.data(), chunk.size(), offset, path_);
    if (got > 0) scanner.feed(std::string_view(chunk).substr(0, got));
    offset += got;
    if (got < chunk.size()) break;
  }
  ranges_ = scanner.finish();
}

std::string TextLines::read(int64_t index) const {
  LOOM_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size(), " in ", path_);
  const TextRange& range = ranges_[static_cast<size_t>(index)];
  std::string out(range.length, '\0');
  const size_t got = read_at(descriptor_, out.data(), out.size(), range.begin, path_);
  LOOM_CHECK_USER(got == out.size(), path_, ":", range.line, ": the file became shorter since it was opened");
  return out;
}

}  // namespace loom
