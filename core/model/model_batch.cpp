#include "core/model/model_batch.h"

#include "core/base/upload.h"

namespace loom {

ModelBatch to_device(ModelBatch batch, c10::Device device) {
  const auto move = [device](Tensor& tensor) {
    if (tensor.defined()) tensor = upload(tensor, device);
  };
  move(batch.tokens);
  move(batch.loss_rows);
  move(batch.targets);
  for (auto& [modality, items] : batch.items) {
    move(items.media);
    move(items.slots);
  }
  return batch;
}

}  // namespace loom
