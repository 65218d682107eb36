#pragma once

// Waiting for another process by way of the file system.

#include <string>

namespace metp {

/// Blocks until `path` is there. Its folder must be.
void AwaitFile(const std::string& path);

}  // namespace metp
