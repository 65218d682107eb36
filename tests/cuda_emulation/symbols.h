#pragma once

// Names of kernels. They stand in unnamed namespaces, so only the program's own symbol table knows them.

#include <string>

namespace metp::emulation {

/// As the linker knows it; null where the table was stripped or does not hold it. Thread-safe, as below.
const char* MangledName(const void* kernel);

/// "Scale<float>"; "at 0x..." where the table was stripped.
std::string KernelName(const void* kernel);

}  // namespace metp::emulation
