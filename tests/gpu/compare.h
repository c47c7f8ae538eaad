#pragma once
// Numbers of two devices side by side. What is told is the largest difference over the largest value: rounding of a sum
// scales with its largest terms, not with the element that it ends in.
#include <string>

#include "core/base/tensor.h"

namespace loom::gpu {

class Compare {
 public:
  Compare(c10::Device device, bool composed) : device_(device), composed_(composed) {}

  c10::Device device() const { return device_; }
  bool composed() const { return composed_; }  // the other side is made of ATen's operations
  Tensor there(const Tensor& here) const;      // a copy of its own on the device

  // Everything that follows is told under this name, with this limit.
  void begin(const std::string& name, double limit);
  void same(const std::string& what, const Tensor& here, const Tensor& there);
  void same(const std::string& what, double here, double there);
  void end();
  int failures() const { return failures_; }
  int checks() const { return checks_; }

 private:
  void told(const std::string& what, double difference);

  c10::Device device_;
  bool composed_;
  std::string name_, worst_;
  double limit_ = 0, largest_ = 0;
  int compared_ = 0, failures_ = 0, checks_ = 0;
};

// Each compares a family of things and tells one line per thing.
void check_pieces(Compare& compare, at::ScalarType type);
void check_units(Compare& compare, const std::string& recipe, const std::string& precision, bool recompute);

}  // namespace loom::gpu
