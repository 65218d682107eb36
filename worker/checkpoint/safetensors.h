#pragma once

// The beginning of a safetensors file (format of Hugging Face's library of that name).

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

namespace metp {

/// The length and the text of `header` (of each tensor dtype, shape and data_offsets), padded so that the values which follow are
/// aligned to eight bytes.
inline std::string SafetensorsBeginning(const nlohmann::ordered_json& header) {
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &size, 8);  // little-endian, as every machine we run on
  return prefix + text;
}

}  // namespace metp
