// Views of a buffer's memory under global names.
#include "core/checkpoint/parts.h"

#include <ATen/ATen.h>

namespace loom {

void append_parts(const UnitBuffer& buffer, const Tensor& flat, const std::string& prefix,
                  std::vector<NamedTensor>& out) {
  for (const BufferEntry& param : buffer.params()) {
    bool held = false;
    for (const BufferEntry& entry : buffer.entries()) {
      if (entry.name != param.name) continue;
      held = true;
      const Tensor view = flat.narrow(0, entry.offset, entry.numel).view(entry.shape);
      out.push_back({prefix + entry.name, view, entry.global_shape, entry.box, buffer.counted()});
    }
    if (held) continue;
    const std::vector<int64_t> nothing(param.shape.size(), 0);  // a scalar has no empty box: a copy that nobody reads
    out.push_back({prefix + param.name,
                   at::empty(nothing, flat.options()),
                   param.global_shape,
                   {nothing, nothing},
                   false,
                   false});
  }
}

}  // namespace loom
