#pragma once

// What is found, until a test asks (TakeFaults). Thread-safe.

#include <string>

namespace metp::emulation {

/// Keeps "kind: text", once for each kind and operation's name, the first 64.
void AddFault(const std::string& kind, const std::string& operation, const std::string& text);

}  // namespace metp::emulation
