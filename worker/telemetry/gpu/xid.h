#pragma once

// The errors that NVIDIA's driver numbers (Xid), in words.

#include <string>

namespace metp {

/// "Xid 48 (a memory error that could not be corrected)"; of one that is not known here only the number.
std::string DescribeXid(int xid);

}  // namespace metp
