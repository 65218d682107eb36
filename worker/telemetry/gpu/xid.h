#pragma once

// The errors that NVIDIA's driver numbers (Xid), in words.

#include <string>

namespace metp {

/// "Xid 79 (the GPU has fallen off the bus)"; of one that is not known here only the number.
std::string DescribeXid(int xid);

}  // namespace metp
