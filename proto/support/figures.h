#pragma once

// Numbers as people read them, the same on the command line and on the status page. Pure.

#include <cstdint>
#include <string>

namespace metp {

/// "512 B", "1.5 KiB", "3.2 GiB".
std::string Bytes(double bytes);
/// "0.123 s", "12.3 s", "2m 05s", "3h 04m".
std::string Duration(double seconds);
/// 1234567 -> "1,234,567".
std::string Grouped(int64_t number);
/// "87 FLOP/s", "1.2 TFLOP/s": `unit` with a prefix of a thousand.
std::string Scaled(double value, const std::string& unit);
/// 0..1 -> "97.3 %".
std::string Percent(double ratio);
/// A loss or norm in about five digits.
std::string Short(double value);

}  // namespace metp
