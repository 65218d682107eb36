#pragma once

// A rectangle of a logical tensor.

#include <cstdint>
#include <string>

#include "worker/ring/partition.h"

namespace metp {

/// Of a tensor [rows, cols]; a vector is [1, size].
struct TensorSlice {
  std::string name;
  int64_t rows = 0, cols = 0;  // of the whole
  Range row, col;
  int64_t size() const { return row.size() * col.size(); }
};

}  // namespace metp
