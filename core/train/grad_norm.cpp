// One pass over every gradient: chunks are summed in parallel, each in an order of its own; their sums are added one by
// one into a sum per parameter. Those sums are what ranks exchange, once: a handful of numbers per parameter buys norms
// per component and the same first name of a gradient that is not finite everywhere, without a second exchange.
#include "core/train/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "core/base/error.h"
#include "core/base/faults.h"
#include "core/base/parallel.h"
#include "core/train/param_groups.h"
#include "core/train/update_kernels.h"

namespace loom {
namespace {

constexpr int64_t kChunk = 1 << 14;

struct Chunk {
  UnitBuffer* buffer;
  size_t param;        // among the parameters of all trainable buffers
  int64_t begin, end;  // in elements of the buffer
};

struct Work {
  std::vector<const std::string*> params;  // names, the same on every rank
  std::vector<Chunk> chunks;               // of this rank, on CPU
};

// On a GPU LibTorch sums, a parameter at a time; the sums come back together.
void add_sums_on_gpu(const std::vector<UnitBuffer*>& buffers, const Work& work, double* sum_of) {
  std::vector<at::Tensor> norms;
  std::vector<size_t> params;
  size_t first = 0;  // parameter of the buffer
  for (UnitBuffer* buffer : buffers) {
    if (!buffer->trainable()) continue;
    const bool counts = buffer->counted() || fault(Fault::replicas_counted_twice);
    for (const BufferEntry& entry : buffer->entries()) {
      if (!counts || !buffer->device().is_cuda()) break;
      const at::Tensor gradient = buffer->gradient().narrow(0, entry.offset, entry.numel);
      norms.push_back(at::linalg_vector_norm(gradient, 2, {}, false, at::kDouble));
      const auto name = std::find_if(work.params.begin() + static_cast<std::ptrdiff_t>(first), work.params.end(),
                                     [&](const std::string* param) { return *param == entry.name; });
      params.push_back(static_cast<size_t>(name - work.params.begin()));
    }
    first += buffer->params().size();
  }
  if (norms.empty()) return;
  const at::Tensor values = at::stack(norms).cpu();
  for (size_t i = 0; i < params.size(); ++i) {
    const double norm = values.const_data_ptr<double>()[i];
    sum_of[params[i]] += norm * norm;
  }
}

Work divide(const std::vector<UnitBuffer*>& buffers) {
  Work work;
  for (UnitBuffer* buffer : buffers) {
    if (!buffer->trainable()) continue;
    buffer->gradient();  // made on first use, so it must not happen inside the parallel loop
    std::unordered_map<std::string, size_t> index;
    for (const BufferEntry& param : buffer->params()) {
      index.emplace(param.name, work.params.size());
      work.params.push_back(&param.name);
    }
    if (!buffer->counted() && !fault(Fault::replicas_counted_twice)) continue;
    if (!buffer->device().is_cpu()) continue;  // a dry run, without values, or summed where they are
    for (const BufferEntry& entry : buffer->entries()) {
      const size_t param = index.at(entry.name);
      for (int64_t at = 0; at < entry.numel; at += kChunk) {
        const int64_t end = std::min(at + kChunk, entry.numel);
        work.chunks.push_back({buffer, param, entry.offset + at, entry.offset + end});
      }
    }
  }
  return work;
}

}  // namespace

GradNorm gradient_norm(const std::vector<UnitBuffer*>& buffers, Communicator& comm) {
  RECORD_FUNCTION("loom::gradient_norm", std::vector<c10::IValue>{});
  const Work work = divide(buffers);
  std::vector<double> chunk_sums(work.chunks.size());
  loom::parallel_for(0, static_cast<int64_t>(work.chunks.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t c = from; c < to; ++c) {
      const Chunk& chunk = work.chunks[static_cast<size_t>(c)];
      const at::Tensor& gradient = chunk.buffer->gradient();
      AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "gradient_norm", [&] {
        chunk_sums[static_cast<size_t>(c)] =
            kernels::sum_of_squares(gradient.const_data_ptr<scalar_t>() + chunk.begin, chunk.end - chunk.begin);
      });
    }
  });
  const at::Tensor sums = at::zeros({static_cast<int64_t>(work.params.size())}, at::kDouble);
  double* const sum_of = sums.mutable_data_ptr<double>();
  for (size_t c = 0; c < work.chunks.size(); ++c) sum_of[work.chunks[c].param] += chunk_sums[c];
  add_sums_on_gpu(buffers, work, sum_of);
  comm.all_reduce("trainer: gradient norm", world_group(comm.world()), sums);

  GradNorm norm;
  double total = 0;
  for (size_t p = 0; p < work.params.size(); ++p) {
    const std::string component = component_of(*work.params[p]);
    auto place = std::find_if(norm.components.begin(), norm.components.end(),
                              [&](const auto& c) { return c.first == component; });
    if (place == norm.components.end()) place = norm.components.insert(place, {component, 0.0});
    place->second += sum_of[p];
    total += sum_of[p];
    if (!std::isfinite(sum_of[p]) && norm.finite()) norm.not_finite = *work.params[p];
  }
  for (auto& component : norm.components) component.second = std::sqrt(component.second);
  norm.total = std::sqrt(total);
  return norm;
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace loom
