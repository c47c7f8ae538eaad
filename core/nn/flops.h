#pragma once
// Who wants to know how many floating-point operations a step takes hears of them here; in an ordinary step nobody
// does. Kernels of our own say what they compute; products of LibTorch are known from its own records
// (core/model/step_meter). A multiply-add is two operations. What was computed before in the same step (recompute,
// scores in the backward of attention) is told apart: it is work, but not the model's.
namespace loom {

struct AttentionSpec;

class FlopSink {
 public:
  virtual ~FlopSink();
  virtual void add_flops(double flops, bool attention, bool again) = 0;
  virtual void attends(const AttentionSpec& spec) = 0;  // a unit's call of the attention service, on its first run
};

// This thread's operations are told to `sink` for the rest of the scope.
class CountFlops {
 public:
  explicit CountFlops(FlopSink& sink);
  ~CountFlops();
  CountFlops(const CountFlops&) = delete;
  CountFlops& operator=(const CountFlops&) = delete;

 private:
  FlopSink* before_;
};

// What is computed in this scope was computed before.
class ComputedAgain {
 public:
  explicit ComputedAgain(bool again = true);
  ~ComputedAgain();
  ComputedAgain(const ComputedAgain&) = delete;
  ComputedAgain& operator=(const ComputedAgain&) = delete;

 private:
  bool again_;
};

// What is computed in this scope is new, even inside a ComputedAgain: a recomputed forward that also makes gradients.
class ComputedFirst {
 public:
  ComputedFirst();
  ~ComputedFirst();
  ComputedFirst(const ComputedFirst&) = delete;
  ComputedFirst& operator=(const ComputedFirst&) = delete;

 private:
  int before_;
};

FlopSink* flop_sink();  // of this thread; null = nobody counts
void count_flops(double flops, bool attention);

}  // namespace loom
