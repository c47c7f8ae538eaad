// The group's rows lie in the order of items, as if one rank held what the group holds; so a segment that only the
// group's members share is whole again, and a split one has a piece per group.
#include "core/nn/tensor_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/comm/communicator.h"
#include "core/nn/context.h"
#include "core/nn/moved_rows.h"
#include "core/reshard/rows.h"

namespace loom {
namespace {

// What is cut of a parameter, in one dimension.
struct Cut {
  std::string name;  // "" = all of it
  int64_t begin = 0, size = 0, block = 1;
};

std::vector<Cut> cuts_of(const ParamDecl& param) {
  const size_t dim = param.split == Split::row ? 1 : 0;
  if (dim >= param.shape.size())
    throw PluginError(concat(param.name, ": a row split of ", param.shape.size(), " dimension"));
  if (dim == 1 || param.parts.empty()) return {{"", 0, param.shape[dim], param.block}};
  std::vector<Cut> out;
  int64_t begin = 0;
  for (const Part& part : param.parts) {
    if (part.split != Split::column)
      throw PluginError(concat(param.name, ": part '", part.name, "' of a column split is not split by column"));
    out.push_back({part.name, begin, part.rows, part.block});
    begin += part.rows;
  }
  return out;
}

int64_t blocks_of(const ParamDecl& param, const Cut& cut) {
  if (cut.block < 1 || cut.size % cut.block != 0)
    throw PluginError(concat(param.name, ": ", cut.size, " rows or columns in blocks of ", cut.block));
  return cut.size / cut.block;
}

}  // namespace

std::vector<Box> split_boxes(const ParamDecl& param, const TensorGroup& group) {
  const size_t dim = param.split == Split::row ? 1 : 0;
  std::vector<Box> out;
  for (const Cut& cut : cuts_of(param)) {
    const int64_t blocks = blocks_of(param, cut);
    LOOM_CHECK(blocks >= group.ranks, param.name, cut.name.empty() ? "" : "#", cut.name, ": ", blocks, " blocks for ",
               group.ranks, " ranks");
    const BlockShare share = share_of(blocks, group);
    Box box = whole_box(param.shape);
    box.offset[dim] = cut.begin + share.begin * cut.block;
    box.size[dim] = share.count() * cut.block;
    out.push_back(std::move(box));
  }
  return out;
}

SplitLimit split_limit(const Declarations& declarations) {
  SplitLimit out;
  for (const ParamDecl& param : declarations.params) {
    if (param.split == Split::none) continue;
    for (const Cut& cut : cuts_of(param)) {
      const int64_t blocks = blocks_of(param, cut);
      if (out.ranks == 0 || blocks < out.ranks)
        out = {blocks, cut.name.empty() ? param.name : param.name + "#" + cut.name};
    }
  }
  return out;
}

AttentionHeads fewest_heads(const Declarations& declarations, int tensor_ranks) {
  const AttentionHeads& all = declarations.attention;
  if (all.heads == 0) return all;
  const int64_t kv_heads = all.kv_heads / tensor_ranks;
  return {kv_heads * (all.heads / all.kv_heads), kv_heads, all.head_dim};
}

GroupPartitions group_partitions(const std::vector<StreamItem>& items, int rank, int tensor_ranks) {
  const int index = rank % tensor_ranks, first = rank - index;
  std::vector<StreamItem> joined = items;
  for (StreamItem& item : joined) {
    for (Piece& piece : item.pieces) piece.rank = piece.rank / tensor_ranks * tensor_ranks + index;
  }
  GroupPartitions out;
  for (auto& [name, segments] : local_partitions(joined, rank)) {
    GroupRows& group = out[name];
    std::vector<RowRun> own, all;
    int64_t total = 0;
    for (const PlacedRows& rows : placed_rows(items, name)) {
      total = std::max(total, rows.global + rows.rows);
      if (rows.rank / tensor_ranks != rank / tensor_ranks) continue;
      own.push_back({rows.rank, rows.global, rows.local, rows.rows});
      if (rows.rank == rank) group.own_rows += rows.rows;
    }
    for (const PlacedRows& rows : placed_rows(joined, name)) {
      if (rows.rank != rank) continue;
      for (int member = 0; member < tensor_ranks; ++member)
        all.push_back({first + member, rows.global, rows.local, rows.rows});
    }
    group.route = route_of(plan_transfers(row_layout(total, own), row_layout(total, all)), rank);
    group.segments = std::move(segments);
  }
  return out;
}

BlockShare UnitContext::share(int64_t blocks) const {
  return state_.tensor == nullptr ? BlockShare{0, blocks} : share_of(blocks, *state_.tensor);
}

int UnitContext::tensor_ranks() const { return state_.tensor == nullptr ? 1 : state_.tensor->ranks; }

const GroupRows& UnitContext::group(std::string_view partition) const {
  segments(partition);  // a name that does not exist is refused in the same words
  const auto found = state_.groups->find(partition);
  LOOM_CHECK(found != state_.groups->end(), "partition '", partition, "' without rows of its tensor group");
  return found->second;
}

const Segments& UnitContext::segments_of(const Tensor& x, std::string_view partition) const {
  const Segments& own = segments(partition);
  if (tensor_ranks() == 1 || x.size(0) == own.rows()) return own;
  return group(partition).segments;
}

Tensor UnitContext::gather_rows(const Tensor& x, std::string_view partition) {
  if (tensor_ranks() == 1) return x;
  const GroupRows& rows = group(partition);
  if (x.size(0) != rows.own_rows) {
    throw PluginError(concat("a split layer reads ", x.sizes(), ", but partition '", partition, "' has ", rows.own_rows,
                             " rows here; name the partition in the layer's options"));
  }
  if (gathered_from_.is_same(x) && gathered_by_ == partition) return gathered_;
  return remember(x, partition, gather_along(x, rows.route, rows.segments.rows()));
}

// Several layers that read the same rows gather them once.
Tensor UnitContext::remember(const Tensor& x, std::string_view partition, Tensor gathered) {
  gathered_from_ = x;
  gathered_by_ = partition;
  gathered_ = std::move(gathered);
  return gathered_;
}

Tensor UnitContext::gather_along(const Tensor& x, const Route& route, int64_t rows) {
  const Tensor values = redistribute_rows(*state_.comm, what("tp rows"), route, x, rows);
  return moved_rows(*state_.comm, what("tp rows gradient"), route, Way::along, values, x);
}

std::vector<int> UnitContext::tensor_group() const {
  return block_group(rank(), state_.comm->world(), state_.tensor->ranks);
}

void UnitContext::gather_members(const char* service, const Tensor& mine, const Tensor& all) {
  state_.comm->all_gather(what(service), tensor_group(), mine.reshape({-1}), all.view({-1})).wait();
}

UnitContext::CountedRows UnitContext::count_rows(int64_t own) {
  const std::vector<int> ranks = tensor_group();
  const auto members = static_cast<int64_t>(ranks.size());
  Tensor counts = at::full({members}, own, at::kLong);
  const Tensor all = at::empty({members}, at::TensorOptions(at::kLong).device(state_.device));
  gather_members("tp row counts", counts.narrow(0, 0, 1).to(state_.device), all);
  if (!all.is_meta()) {
    counts = all.cpu();
  } else if (state_.group_loss_rows != nullptr && !state_.group_loss_rows->empty()) {
    counts = at::tensor(at::ArrayRef<int64_t>(*state_.group_loss_rows), at::kLong);
  }
  CountedRows out;
  out.own = own;
  std::vector<RowRun> mine, everywhere;
  for (int64_t member = 0; member < members; ++member) {
    const int64_t rows = counts.const_data_ptr<int64_t>()[member];
    if (member == state_.tensor->index) out.begin = out.all;
    if (rows > 0) mine.push_back({ranks[static_cast<size_t>(member)], out.all, 0, rows});
    out.all += rows;
  }
  for (const int rank : ranks) everywhere.push_back({rank, 0, 0, out.all});
  out.route = std::make_shared<Route>(
      route_of(plan_transfers(row_layout(out.all, mine), row_layout(out.all, everywhere)), rank()));
  return out;
}

Tensor UnitContext::gather_rows(const Tensor& x, const CountedRows& rows) {
  return gather_along(x, *rows.route, rows.all);
}

Tensor UnitContext::own_rows(const Tensor& x, const CountedRows& rows) {
  return moved_rows(*state_.comm, what("tp row gradients"), *rows.route, Way::back,
                    x.detach().narrow(0, rows.begin, rows.own).clone(), x);
}

Tensor UnitContext::sum_rows(const Tensor& partial, std::string_view partition) {
  if (tensor_ranks() == 1) return partial;
  const GroupRows& group_rows = group(partition);
  const int64_t all = group_rows.segments.rows();
  if (partial.size(0) != all) {
    throw PluginError(concat("a row split layer makes ", partial.sizes(), ", but its tensor group has ", all,
                             " rows of partition '", partition, "'"));
  }
  Tensor values;
  if (state_.kept != nullptr && state_.recomputing) {
    values = next(state_.kept->moved, next_kept_moved_);
  } else {
    values = redistribute_rows_adjoint(*state_.comm, what("tp sums"), group_rows.route, partial, group_rows.own_rows);
    if (state_.kept != nullptr) state_.kept->moved.push_back(values);
  }
  return moved_rows(*state_.comm, what("tp sums gradient"), group_rows.route, Way::back, values, partial);
}

}  // namespace loom
