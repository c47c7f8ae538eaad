// Rows of partitions at cuts, and what can be wrong with a plugin's word. A cut is legal where every partition has a
// row for it, so nothing that a partition calls one row is ever divided.
#include "core/step/item_layout.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"

namespace loom {
namespace {

// -1 when the partition has no row there. `items_rows` are those of the default partition.
int64_t row_of(const ItemLayout& layout, const ItemPartition& part, int64_t part_rows, int64_t item_rows, int64_t cut) {
  if (cut == 0) return 0;
  if (cut == item_rows) return part_rows;
  if (cut < 0 || cut > item_rows) return -1;
  if (part.cut_rows.empty()) return cut * part_rows % item_rows == 0 ? cut * part_rows / item_rows : -1;
  const auto found = std::lower_bound(layout.cuts.begin(), layout.cuts.end(), cut);
  if (found == layout.cuts.end() || *found != cut) return -1;
  const size_t index = static_cast<size_t>(found - layout.cuts.begin());
  return index < part.cut_rows.size() ? part.cut_rows[index] : -1;
}

const ItemPartition& partition_of(const ItemLayout& layout, std::string_view name) {
  const auto found = layout.partitions.find(name);
  LOOM_CHECK(found != layout.partitions.end(), "no partition '", name, "' in an item's layout");
  return found->second;
}

std::string partition_mistake(const std::string& name, const ItemPartition& part) {
  for (const int64_t length : part.lengths) {
    if (length < 0) return concat("partition '", name, "' has a segment of ", length, " rows");
  }
  if (part.position_axes < 1) return concat("partition '", name, "' has ", part.position_axes, " position axes");
  const int64_t rows = part.rows();
  if (!part.positions.empty() && static_cast<int64_t>(part.positions.size()) != rows * part.position_axes) {
    return concat("partition '", name, "' has ", part.positions.size(), " positions; expected ", rows, " rows x ",
                  part.position_axes, " axes");
  }
  return "";
}

std::string cuts_mistake(const ItemLayout& layout, int64_t item_rows) {
  for (size_t i = 0; i < layout.cuts.size(); ++i) {
    const int64_t cut = layout.cuts[i];
    if (cut <= 0 || cut >= item_rows) return concat("cut ", cut, " lies outside the item's ", item_rows, " rows");
    if (i > 0 && cut <= layout.cuts[i - 1])
      return concat("cut ", cut, " comes after ", layout.cuts[i - 1], "; expected ascending cuts");
  }
  for (const auto& [name, part] : layout.partitions) {
    const int64_t rows = part.rows();
    if (part.cut_rows.empty()) {
      for (const int64_t cut : layout.cuts) {
        if (row_of(layout, part, rows, item_rows, cut) < 0) {
          return concat("partition '", name, "' has no row at cut ", cut, ": its ", rows, " rows to the item's ",
                        item_rows, "; expected another cut, or cut_rows");
        }
      }
      continue;
    }
    if (part.cut_rows.size() != layout.cuts.size()) {
      return concat("partition '", name, "' has ", part.cut_rows.size(), " cut_rows; expected one per cut, ",
                    layout.cuts.size());
    }
    if (name.empty() && part.cut_rows != layout.cuts) {
      return "cut_rows of the default partition differ from the cuts; expected none";
    }
    for (size_t i = 0; i < part.cut_rows.size(); ++i) {
      const int64_t row = part.cut_rows[i];
      if (row < 0 || row > rows)
        return concat("cut row ", row, " lies outside the ", rows, " rows of partition '", name, "'");
      if (i > 0 && row < part.cut_rows[i - 1]) {
        return concat("cut row ", row, " of partition '", name, "' comes after ", part.cut_rows[i - 1],
                      "; expected ascending rows");
      }
    }
  }
  return "";
}

}  // namespace

int64_t ItemPartition::rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

ItemLayout whole_item(int64_t tokens) {
  ItemLayout layout;
  layout.partitions[""].lengths = {tokens};
  return layout;
}

int64_t row_at(const ItemLayout& layout, std::string_view partition, int64_t cut) {
  const ItemPartition& part = partition_of(layout, partition);
  return row_of(layout, part, part.rows(), partition_of(layout, "").rows(), cut);
}

bool legal_cut(const ItemLayout& layout, int64_t row) {
  if (layout.whole) return false;
  if (!layout.cuts.empty() && !std::binary_search(layout.cuts.begin(), layout.cuts.end(), row)) return false;
  const int64_t item_rows = partition_of(layout, "").rows();
  if (row <= 0 || row >= item_rows) return false;
  return std::all_of(layout.partitions.begin(), layout.partitions.end(), [&](const auto& named) {
    return row_of(layout, named.second, named.second.rows(), item_rows, row) >= 0;
  });
}

std::vector<int64_t> legal_cuts(const ItemLayout& layout, std::string_view outputs, int64_t merge) {
  std::vector<int64_t> out;
  if (layout.whole) return out;
  const int64_t item_rows = partition_of(layout, "").rows();
  if (item_rows < 2) return out;
  // A partition in proportion has a row at every multiple of this.
  int64_t step = 1;
  for (const auto& [name, part] : layout.partitions) {
    if (part.cut_rows.empty()) step = std::lcm(step, item_rows / std::gcd(item_rows, part.rows()));
  }
  const ItemPartition& result = partition_of(layout, outputs);
  const int64_t result_rows = result.rows();
  const auto consider = [&](int64_t row) {
    const int64_t output = row_of(layout, result, result_rows, item_rows, row);
    if (output >= 0 && output % merge == 0) out.push_back(row);
  };
  if (layout.cuts.empty()) {
    for (int64_t row = step; row < item_rows; row += step) consider(row);
  } else {
    for (const int64_t row : layout.cuts) {
      if (row % step == 0 && row > 0 && row < item_rows) consider(row);
    }
  }
  return out;
}

std::string layout_mistake(const ItemLayout& layout, const ItemMeta& meta) {
  const auto whole = layout.partitions.find("");
  if (whole == layout.partitions.end()) return "there is no default partition ''";
  for (const auto& [name, part] : layout.partitions) {
    std::string mistake = partition_mistake(name, part);
    if (!mistake.empty()) return mistake;
  }
  const int64_t rows = whole->second.rows();
  if (rows != meta.tokens) return concat("the default partition has ", rows, " rows, measure() said ", meta.tokens);
  if (!layout.permutation.empty()) {
    std::vector<bool> used(static_cast<size_t>(std::max<int64_t>(meta.outputs, 0)), false);
    bool good = layout.permutation.size() == used.size();
    for (size_t i = 0; good && i < layout.permutation.size(); ++i) {
      const int64_t row = layout.permutation[i];
      good = row >= 0 && row < meta.outputs && !used[static_cast<size_t>(row)];
      if (good) used[static_cast<size_t>(row)] = true;
    }
    if (!good) return concat("permutation is not one of its ", meta.outputs, " output rows");
  }
  return cuts_mistake(layout, rows);
}

std::string outputs_mistake(const ItemLayout& layout, const ItemMeta& meta, std::string_view outputs) {
  const auto found = layout.partitions.find(outputs);
  if (found == layout.partitions.end())
    return concat("there is no partition '", outputs, "', of which its features are rows");
  const int64_t rows = found->second.rows();
  if (rows == meta.outputs) return "";
  return concat("partition '", outputs, "', of which its features are rows, has ", rows, " rows, measure() said ",
                meta.outputs, " outputs");
}

}  // namespace loom
