#pragma once
// Which vector instructions the processor has: code that is compiled several times is chosen by this, so that a binary
// made anywhere is fast everywhere.

namespace loom {

enum class InstructionSet {
  generic = 1,
  avx2,   // with FMA
  avx512  // F, BW, DQ, VL
};

bool supports(InstructionSet set);
InstructionSet best_instruction_set();

}  // namespace loom
