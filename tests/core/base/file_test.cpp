// Files: atomic replacement, and what a failing disk says.
#include "core/base/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/base/error.h"
#include "tests/core/base/temp_folder.h"

namespace loom {
namespace {

using test::file_count;
using test::message_of;
using test::slurp;
using test::TempFolder;

TEST(File, WritesAndReadsBytes) {
  TempFolder folder;
  std::string bytes("a\0b\r\n", 5);
  write_file_atomic(folder / "x", bytes);
  EXPECT_EQ(read_text(folder / "x"), bytes);
  write_file_atomic(folder / "x", "");
  EXPECT_EQ(read_text(folder / "x"), "");
  EXPECT_EQ(file_count(folder.path()), 1u);
  std::string large(3 << 20, 'q');
  write_file_atomic(folder / "x", large);
  EXPECT_EQ(read_text(folder / "x"), large);
}

TEST(File, MissingInputIsTheUsersMistake) {
  TempFolder folder;
  EXPECT_EQ(message_of<UserError>([&] { read_text(folder / "no.yaml"); }), folder / "no.yaml: no such file");
  EXPECT_EQ(message_of<UserError>([&] { read_text(folder.path()); }), folder.path() + ": is a folder; expected a file");
  folder.write("file", "");
  EXPECT_EQ(message_of<UserError>([&] { read_text(folder / "file/x"); }),
            folder / "file/x: cannot be read: Not a directory");
}

TEST(File, UnwritablePlacesAreTheEnvironmentsFault) {
  TempFolder folder;
  folder.write("file", "");
  EXPECT_EQ(message_of<EnvironmentError>([&] { write_file_atomic(folder / "no/x", "a"); }),
            "cannot create " + folder.path() + "/no/x: No such file or directory");
  EXPECT_EQ(message_of<EnvironmentError>([&] { make_dirs(folder / "file/sub"); }),
            "cannot create folder " + folder.path() + "/file/sub: Not a directory");
  EXPECT_EQ(message_of<EnvironmentError>([&] { make_dirs(folder / "file"); }),
            "cannot create folder " + folder.path() + "/file: Not a directory");
  EXPECT_EQ(message_of<EnvironmentError>([&] { fsync_dir(folder / "no"); }),
            "cannot open folder " + folder.path() + "/no: No such file or directory");
  folder.write("target", "");
  make_dirs(folder / "target.d/full");
  EXPECT_EQ(message_of<EnvironmentError>([&] { write_file_atomic(folder / "target.d", "a"); }),
            "cannot replace " + folder.path() + "/target.d: Is a directory");
  EXPECT_EQ(file_count(folder.path()), 3u);  // no temporary file is left
}

TEST(File, DiskFullSaysSo) {
  EXPECT_EQ(errno_text(ENOSPC), "disk full");
  int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(message_of<EnvironmentError>([&] { write_fully(full, "abc", "out.bin"); }),
            "cannot write out.bin: disk full");
  ::close(full);
}

TEST(File, AFailedWriteLeavesTheOldContent) {
  TempFolder folder;
  write_file_atomic(folder / "x", "old");
  pid_t child = ::fork();
  if (child == 0) {  // in a process of its own: the limit cannot be raised again
    ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit {
      1000, 1000
    };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      write_file_atomic(folder / "x", std::string(5000, 'n'));
    } catch (const EnvironmentError&) {
      code = 0;
    } catch (...) {
      code = 2;
    }
    ::_exit(code);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(slurp(folder / "x"), "old");
  EXPECT_EQ(file_count(folder.path()), 1u);
}

TEST(File, MakesNestedFolders) {
  TempFolder folder;
  make_dirs(folder / "a/b/c");
  make_dirs(folder / "a/b/c");
  EXPECT_TRUE(is_folder(folder / "a/b/c"));
  EXPECT_FALSE(is_file(folder / "a/b/c"));
  write_file_atomic(folder / "a/b/c/f", "1");
  EXPECT_TRUE(is_file(folder / "a/b/c/f"));
}

}  // namespace
}  // namespace loom
