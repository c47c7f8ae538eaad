#include "core/checkpoint/save_plan.h"

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"

namespace loom {
namespace {

struct Item {
  TensorPart part;
  std::vector<int> holders;  // ascending
};

// Every distinct box with its holders, by name, then box.
std::vector<Item> distinct_boxes(const std::vector<std::vector<TensorPart>>& held_by_rank) {
  std::vector<Item> all;
  for (size_t rank = 0; rank < held_by_rank.size(); ++rank) {
    for (const TensorPart& part : held_by_rank[rank]) all.push_back({part, {static_cast<int>(rank)}});
  }
  std::stable_sort(all.begin(), all.end(), [](const Item& a, const Item& b) { return comes_before(a.part, b.part); });
  std::vector<Item> out;
  for (Item& item : all) {
    if (!out.empty() && out.back().part.name == item.part.name) {
      const TensorPart& last = out.back().part;
      LOOM_CHECK(last.dtype == item.part.dtype && last.shape == item.part.shape, "tensor ", last.name, " is ",
                 last.dtype, " ", at::IntArrayRef(last.shape), " on rank ", out.back().holders.front(), " and ",
                 item.part.dtype, " ", at::IntArrayRef(item.part.shape), " on rank ", item.holders.front());
      if (last.box == item.part.box) {
        const int rank = item.holders.front();
        LOOM_CHECK(out.back().holders.back() != rank, "rank ", rank, " holds ", last.name, last.box.str(), " twice");
        out.back().holders.push_back(rank);
        continue;
      }
    }
    out.push_back(std::move(item));
  }
  return out;
}

void check_cover(const std::vector<Item>& items) {
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    std::vector<Box> boxes;
    while (end < items.size() && items[end].part.name == items[begin].part.name) boxes.push_back(items[end++].part.box);
    const TensorPart& part = items[begin].part;
    LOOM_CHECK(tiles(boxes, whole_box(part.shape)), "the ranks do not hold ", part.name, " exactly once");
  }
}

}  // namespace

SavePlan plan_save(const std::vector<std::vector<TensorPart>>& held_by_rank) {
  std::vector<Item> items = distinct_boxes(held_by_rank);
  check_cover(items);
  SavePlan plan;
  plan.bytes.assign(held_by_rank.size(), 0);
  std::vector<size_t> shared;
  for (size_t i = 0; i < items.size(); ++i) {
    Item& item = items[i];
    const bool whole = item.part.box == whole_box(item.part.shape);
    plan.boxes.push_back(
        {item.part, item.holders.front(), whole ? item.part.name : item.part.name + item.part.box.str()});
    if (item.holders.size() > 1) {
      shared.push_back(i);
    } else {
      plan.bytes[static_cast<size_t>(item.holders.front())] += item.part.bytes();
    }
  }
  std::stable_sort(shared.begin(), shared.end(),
                   [&](size_t a, size_t b) { return items[a].part.bytes() > items[b].part.bytes(); });
  const auto load = [&](int rank) -> int64_t& { return plan.bytes[static_cast<size_t>(rank)]; };
  for (const size_t i : shared) {
    const std::vector<int>& holders = items[i].holders;
    plan.boxes[i].writer =
        *std::min_element(holders.begin(), holders.end(), [&](int a, int b) { return load(a) < load(b); });
    load(plan.boxes[i].writer) += items[i].part.bytes();
  }
  return plan;
}

std::string rank_file(int rank) {
  char text[40];
  std::snprintf(text, sizeof text, "rank-%05d.safetensors", rank);
  return text;
}

}  // namespace loom
