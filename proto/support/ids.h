#pragma once

// Names that must not collide without anyone being asked: request ids, incarnations.

#include <cstdint>
#include <random>
#include <string>

namespace metp {

/// `digits` random hexadecimal digits from the operating system. Any thread.
inline std::string RandomHex(int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  std::string out;
  out.reserve(digits);
  for (int i = 0; i < digits; ++i) out.push_back(kDigits[device() & 15]);
  return out;
}

}  // namespace metp
