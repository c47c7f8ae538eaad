#include "tests/gpu/compare.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace loom::gpu {

Tensor Compare::there(const Tensor& here) const {
  return here.defined() ? here.detach().to(device_, here.scalar_type(), false, true) : here;
}

void Compare::begin(const std::string& name, double limit) {
  name_ = name;
  limit_ = limit;
  largest_ = 0;
  compared_ = 0;
  worst_.clear();
}

void Compare::told(const std::string& what, double difference) {
  ++compared_;
  if (!(difference <= largest_) || worst_.empty()) {
    largest_ = difference;
    worst_ = what;
  }
}

void Compare::same(const std::string& what, const Tensor& here, const Tensor& there) {
  if (!here.defined() || !there.defined() || here.sizes() != there.sizes() ||
      here.scalar_type() != there.scalar_type()) {
    return told(what + " (shape or dtype)", HUGE_VAL);
  }
  if (here.numel() == 0) return told(what, 0);
  const Tensor a = here.detach().to(at::kDouble), b = there.detach().cpu().to(at::kDouble);
  // Infinities, of rows that see nothing, must be the same ones.
  const Tensor endless = a.isinf();
  if (!endless.equal(b.isinf())) return told(what + " (infinities)", HUGE_VAL);
  const Tensor x = a.masked_fill(endless, 0), y = b.masked_fill(endless, 0);
  const double difference = (x - y).abs().max().item<double>(), size = x.abs().max().item<double>();
  told(what, difference / std::max(size, 1e-6));
}

void Compare::same(const std::string& what, double here, double there) {
  told(what, std::abs(here - there) / std::max(std::abs(here), 1e-6));
}

void Compare::end() {
  ++checks_;
  const bool good = compared_ > 0 && largest_ <= limit_;
  if (!good) ++failures_;
  std::printf("%s %-58s %9.2e of at most %.0e, %d compared, worst: %s\n", good ? "ok  " : "FAIL", name_.c_str(),
              largest_, limit_, compared_, worst_.c_str());
  std::fflush(stdout);
}

}  // namespace loom::gpu
