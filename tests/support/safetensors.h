#pragma once

// Reading golden vectors: safetensors files, every element widened to double. Test code; throws
// std::runtime_error.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace metp::testing {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;
  int64_t rows() const { return shape.size() < 2 ? 1 : shape[0]; }
  int64_t cols() const { return shape.back(); }
};

std::map<std::string, GoldenTensor> ReadSafetensors(const std::string& path);

}  // namespace metp::testing
