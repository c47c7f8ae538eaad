#include "pipelines/checkpoint_diff.h"

#include <ATen/ATen.h>

#include <cstring>
#include <ostream>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/checkpoint/stored_tensors.h"

namespace loom {
namespace {

Tensor whole(StoredTensors& stored, const std::string& name) {
  const StoredTensor& tensor = stored.manifest().tensors.at(name);
  const Tensor out = at::empty(tensor.shape, tensor.dtype);
  stored.read(name, whole_box(tensor.shape), out);
  return out;
}

// "12 of 64 values differ, by up to 0.25"; empty when all bits are equal.
std::string difference(const Tensor& a, const Tensor& b) {
  if (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return "";
  const int64_t size = static_cast<int64_t>(a.element_size());
  const auto bits = [&](const Tensor& tensor) { return tensor.reshape({-1}).view(at::kByte).view({-1, size}); };
  const int64_t different = bits(a).ne(bits(b)).any(1).sum().item<int64_t>();
  const Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const Tensor apart = (x - y).abs();
  const double most = at::where(apart.isnan(), at::zeros_like(apart), apart).max().item<double>();
  const int64_t one_nan = x.isnan().ne(y.isnan()).sum().item<int64_t>();
  std::string out = concat(with_commas(different), " of ", with_commas(a.numel()), " values differ, by up to ",
                           shortest_double(most));
  if (one_nan > 0) out += concat("; ", with_commas(one_nan), " are nan in one of them");
  return out;
}

std::string text_of(const StoredTensor& tensor) { return type_and_shape(tensor.dtype, tensor.shape); }

}  // namespace

int diff_checkpoints(const std::string& first, const std::string& second, std::ostream& out) {
  StoredTensors a(first, read_manifest(first)), b(second, read_manifest(second));
  const auto &in_a = a.manifest().tensors, &in_b = b.manifest().tensors;
  int64_t equal = 0, different = 0;
  const auto tell = [&](const auto&... words) {
    out << concat(words...) << "\n";
    ++different;
  };
  for (const auto& [name, tensor] : in_a) {
    const auto other = in_b.find(name);
    if (other == in_b.end()) {
      tell("only in ", first, ": ", name, " ", text_of(tensor));
    } else if (tensor.dtype != other->second.dtype || tensor.shape != other->second.shape) {
      tell(name, ": ", text_of(tensor), " and ", text_of(other->second));
    } else if (const std::string words = difference(whole(a, name), whole(b, name)); !words.empty()) {
      tell(name, ": ", words);
    } else {
      ++equal;
    }
  }
  for (const auto& [name, tensor] : in_b) {
    if (in_a.count(name) == 0) tell("only in ", second, ": ", name, " ", text_of(tensor));
  }
  if (different == 0) {
    out << "equal: " << equal << (equal == 1 ? " tensor\n" : " tensors\n");
    return 0;
  }
  out << different << " of " << equal + different << " tensors differ\n";
  return 1;
}

}  // namespace loom
