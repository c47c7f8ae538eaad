#include "core/nn/gradient_sink.h"

namespace loom {

GradientSink::~GradientSink() = default;

}  // namespace loom
