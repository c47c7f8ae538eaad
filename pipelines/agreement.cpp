// Rank 0's text goes to everybody, each rank compares, and the first one that differs tells all.
#include "pipelines/agreement.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/comm/texts.h"

namespace loom {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string line_at(const std::vector<std::string>& lines, size_t i) {
  if (i >= lines.size()) return "nothing";
  const size_t begin = std::min(lines[i].find_first_not_of(' '), lines[i].size());
  return concat("'", lines[i].substr(begin), "'");
}

}  // namespace

std::string first_difference(const std::string& mine, const std::string& expected) {
  if (mine == expected) return "";
  const std::vector<std::string> a = lines_of(mine), b = lines_of(expected);
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  return concat("line ", i + 1, ": ", line_at(a, i), " instead of ", line_at(b, i));
}

void agree(Communicator& comm, const std::vector<Fact>& facts) {
  const RankGroup everyone = world_group(comm.world());
  std::string difference;
  for (const Fact& fact : facts) {
    const std::string expected =
        comm.broadcast(concat("agreement: ", fact.name), everyone, 0, comm.rank() == 0 ? fact.text : "");
    const std::string found = first_difference(fact.text, expected);
    if (difference.empty() && !found.empty())
      difference = concat("rank ", comm.rank(), ": its ", fact.name, " differs from rank 0's in ", found);
  }
  std::string first;
  int64_t count = 0;
  for (const std::string& found : exchange_texts(comm, "agreement: differences", difference)) {
    if (found.empty()) continue;
    if (count++ == 0) first = found;
  }
  if (count == 0) return;
  throw UserError(count == 1 ? first : concat(first, " (and ", count - 1, " more ranks differ)"));
}

}  // namespace loom
