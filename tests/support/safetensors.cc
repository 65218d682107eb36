#include "tests/support/safetensors.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace metp::testing {

namespace {

template <typename T>
std::vector<double> Widen(const char* bytes, size_t count) {
  std::vector<double> out(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<double>(value);
  }
  return out;
}

/// The upper halves of floats.
std::vector<double> WidenBf16(const char* bytes, size_t count) {
  std::vector<double> out(count);
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(reinterpret_cast<char*>(&value) + 2, bytes + i * 2, 2);  // little-endian
    out[i] = value;
  }
  return out;
}

}  // namespace

std::map<std::string, GoldenTensor> ReadSafetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  uint64_t head = 0;
  std::memcpy(&head, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, head));
  const char* data = bytes.data() + 8 + head;
  std::map<std::string, GoldenTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    GoldenTensor tensor;
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    const auto offsets = entry.at("data_offsets").get<std::vector<size_t>>();
    const std::string type = entry.at("dtype");
    const char* at = data + offsets[0];
    const size_t size = offsets[1] - offsets[0];
    if (type == "F32")
      tensor.values = Widen<float>(at, size / 4);
    else if (type == "F64")
      tensor.values = Widen<double>(at, size / 8);
    else if (type == "BF16")
      tensor.values = WidenBf16(at, size / 2);
    else if (type == "I64")
      tensor.values = Widen<int64_t>(at, size / 8);
    else
      throw std::runtime_error(path + ": unexpected element type " + type);
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

}  // namespace metp::testing
