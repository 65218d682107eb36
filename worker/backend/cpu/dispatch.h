#pragma once

// What the run-time dispatch of the vector kernels chose. Any thread.

#include <string>

namespace metp::cpu {

/// The instruction set the kernels run with, in lower case: "avx3", "avx2", "sse2", "neon".
std::string InstructionSet();

}  // namespace metp::cpu
