#include "core/nn/flops.h"

namespace loom {
namespace {

thread_local FlopSink* current = nullptr;
thread_local int repeats = 0;

}  // namespace

FlopSink::~FlopSink() = default;

CountFlops::CountFlops(FlopSink& sink) : before_(current) { current = &sink; }
CountFlops::~CountFlops() { current = before_; }

ComputedAgain::ComputedAgain(bool again) : again_(again) { repeats += again_ ? 1 : 0; }
ComputedAgain::~ComputedAgain() { repeats -= again_ ? 1 : 0; }

ComputedFirst::ComputedFirst() : before_(repeats) { repeats = 0; }
ComputedFirst::~ComputedFirst() { repeats = before_; }

FlopSink* flop_sink() { return current; }

void count_flops(double flops, bool attention) {
  if (current != nullptr) current->add_flops(flops, attention, repeats > 0);
}

}  // namespace loom
