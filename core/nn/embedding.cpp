#include "core/nn/embedding.h"

#include <ATen/ATen.h>

#include "core/base/error.h"
#include "core/base/upload.h"
#include "core/nn/context.h"
#include "core/nn/ops/embedding.h"

namespace loom {
namespace {

int64_t cells(const std::vector<int64_t>& grid) {
  int64_t n = 1;
  for (const int64_t size : grid) n *= size;
  return n;
}

}  // namespace

Embedding::Embedding(const Declarer& d, int64_t rows, int64_t width, Init init)
    : weight_(d.param("weight", {rows, width}, init, {Split::column})) {}

Tensor Embedding::operator()(const Tensor& ids_T, UnitContext& ctx) const {
  const Weight weight = ctx.weight(weight_);
  if (ctx.tensor_ranks() == 1) return embedding(weight, ids_T);
  const BlockShare mine = ctx.share(ctx.declaration(weight_).shape[0]);
  const Tensor ids = ctx.gather_rows(ids_T.unsqueeze(1)).squeeze(1) - mine.begin;
  const Tensor here = ids.ge(0).bitwise_and(ids.lt(mine.count()));
  const Tensor rows = embedding(weight, ids.clamp(0, mine.count() - 1));
  return ctx.sum_rows(rows * here.unsqueeze(1).to(rows.scalar_type()));
}

PositionEmbedding::PositionEmbedding(const Declarer& d, std::vector<int64_t> grid, int64_t width, std::string partition,
                                     Init init)
    : grid_(std::move(grid)),
      partition_(std::move(partition)),
      weight_(d.param("weight", {cells(grid_), width}, init)) {}

Tensor PositionEmbedding::operator()(const Tensor& x_TW, UnitContext& ctx) const {
  const Segments& segments = ctx.segments(partition_);
  const int64_t axes = segments.position_axes, count = segments.rows();
  const std::vector<int64_t> sizes = axes == 1 ? std::vector<int64_t>{cells(grid_)} : grid_;
  if (static_cast<int64_t>(sizes.size()) != axes) {
    throw PluginError(concat("position embedding: positions have ", axes, " axes, its grid ", sizes.size()));
  }
  Tensor ids = at::empty({count}, at::kLong);
  auto* out = ids.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < count; ++row) {
    int64_t id = 0;
    for (int64_t axis = 0; axis < axes; ++axis) {
      const int64_t position = segments.positions[row * axes + axis];
      if (position < 0 || position >= sizes[axis]) {
        throw PluginError(
            concat("position embedding: position ", position, " on axis ", axis, ", its table has ", sizes[axis]));
      }
      id = id * sizes[axis] + position;
    }
    out[row] = id;
  }
  return x_TW + at::embedding(ctx[weight_], upload(ids, x_TW.device()));
}

}  // namespace loom
