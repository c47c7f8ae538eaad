#include "core/model/model_batch.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/upload.h"

namespace loom {

const EncoderBatch& ModelBatch::pass(const std::string& modality) const {
  const auto found = std::find_if(encode.begin(), encode.end(), [&](const EncoderBatch& batch) {
    return batch.modality == modality && batch.pass == microbatch;
  });
  LOOM_CHECK(found != encode.end(), "no pass of ", modality, " begins with microbatch ", microbatch);
  return *found;
}

const Landing& ModelBatch::landing(const std::string& modality) const {
  const std::vector<Landing>& landings = pass(modality).landings;
  LOOM_CHECK(!landings.empty() && landings.front().microbatch == microbatch, "no items of ", modality,
             " in microbatch ", microbatch);
  return landings.front();
}

ModelBatch to_device(ModelBatch batch, c10::Device device) {
  const auto move = [device](Tensor& tensor) {
    if (tensor.defined()) tensor = upload(tensor, device);
  };
  move(batch.tokens);
  move(batch.loss_rows);
  move(batch.targets);
  for (EncoderBatch& pass : batch.encode) {
    move(pass.media);
    for (Landing& landing : pass.landings) move(landing.slots);
  }
  return batch;
}

}  // namespace loom
