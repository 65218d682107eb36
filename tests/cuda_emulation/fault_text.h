#pragma once

// Words for faults.

#include <cstdint>
#include <string>

namespace metp::emulation {

/// "kernel K, block (0,0,0) thread (5,0,0)", of a cell or of here.stamp.
std::string DescribeActor(uint64_t stamp);

/// Whether the address is a variable of the host thread that stands for the device's (blockDim, say). (launch.cc)
bool OwnVariable(uintptr_t at);

}  // namespace metp::emulation
