#pragma once

// Names of kernels. They stand in unnamed namespaces, so only the program's own symbol table knows them.

#include <string>

namespace metp::emulation {

/// "Scale<float>"; "at 0x..." where the table was stripped. Thread-safe.
std::string KernelName(const void* kernel);

}  // namespace metp::emulation
