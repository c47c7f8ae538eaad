#pragma once
// Runs a check under every instruction set that this machine has.
#include <gtest/gtest.h>

#include "core/nn/kernels/kernel_set.h"

namespace loom::test {

template <class F>
void at_every_level(const F& check) {
  const kernels::Level before = kernels::current_level();
  for (const kernels::Level level : {kernels::Level::generic, kernels::Level::avx2, kernels::Level::avx512}) {
    if (!supports(level)) continue;
    SCOPED_TRACE(kernels::level_name(level));
    kernels::use_level(level);
    check();
  }
  kernels::use_level(before);
}

}  // namespace loom::test
