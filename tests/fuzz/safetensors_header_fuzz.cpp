// A safetensors file: header, ranges, and the bytes of every tensor that its header names.
#include <ATen/ATen.h>

#include "core/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace loom;
  const fuzz::MemoryFile file(fuzz::view(data, size));
  fuzz::expect_parsed_or_refused([&] {
    const SafetensorsReader reader(file.path());
    reader.crc32();
    for (const auto& [key, info] : reader.tensors()) {
      const Tensor tensor = reader.tensor(key);
      fuzz::require(tensor.sizes() == at::IntArrayRef(info.shape), "a tensor has another shape than the header says");
      fuzz::require(static_cast<uint64_t>(tensor.nbytes()) == info.end - info.begin, "a tensor has other bytes");
      fuzz::touch(tensor.const_data_ptr(), tensor.nbytes());
    }
  });
  return 0;
}
