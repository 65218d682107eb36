#pragma once

// The suite that every backend must pass: each operation against a slow reference in double precision. A
// backend joins by linking the conformance_*.cc files and instantiating BackendConformance with its factory
// (see cpu_backend_test.cc).

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "tests/worker/backend/host.h"
#include "worker/backend/backend.h"
#include "worker/telemetry/ledger.h"

namespace metp::testing {

struct BackendUnderTest {
  std::string name;
  std::function<std::unique_ptr<Backend>(MemoryLedger&)> make;
  /// Largest error allowed, relative to the largest magnitude of the expected matrix.
  double tolerance = 1e-5;
};

inline std::ostream& operator<<(std::ostream& out, const BackendUnderTest& backend) {
  return out << backend.name;
}

class BackendConformance : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  Backend& backend() { return *backend_; }
  MemoryLedger& ledger() { return ledger_; }
  DType activation() { return backend_->activation(); }
  /// In the type of activations; `host` is rounded to it, so that the reference sees what the backend sees.
  Device Activation(Host& host, int64_t pad = 0) { return Of(activation(), host, pad); }
  /// The types that an operand may have which is either: fp32, and activation() where that is another.
  std::vector<DType> WideTypes() {
    if (activation() == DType::kF32) return {DType::kF32};
    return {DType::kF32, activation()};
  }
  /// As Activation, in any type.
  Device Of(DType type, Host& host, int64_t pad = 0) {
    for (double& x : host.values) x = Rounded(x, type);
    return Device(backend(), host, type, pad);
  }
  Device F32(const Host& host, int64_t pad = 0) { return Device(backend(), host, DType::kF32, pad); }
  Device I32(const Host& host, int64_t pad = 0) { return Device(backend(), host, DType::kI32, pad); }

  /// Within tolerance * factor of the largest expected magnitude, or of `least_magnitude` where that is
  /// larger.
  void ExpectNear(const Device& actual, const Host& expected, double factor = 1, double least_magnitude = 0) {
    EXPECT_TRUE(actual.PaddingIntact()) << "wrote between the rows";
    const Host got = actual.Get();
    ASSERT_EQ(got.values.size(), expected.values.size());
    double magnitude = least_magnitude;
    for (double x : expected.values) {
      if (std::isfinite(x)) magnitude = std::max(magnitude, std::abs(x));
    }
    const double allowed = GetParam().tolerance * factor * magnitude;
    for (size_t i = 0; i < got.values.size(); ++i) {
      const double want = expected.values[i];
      const bool same = got.values[i] == want || std::abs(got.values[i] - want) <= allowed;
      ASSERT_TRUE(same) << "row " << i / got.cols << " column " << i % got.cols << ": found " << got.values[i]
                        << ", expected " << want << " within " << allowed;
    }
  }

 private:
  MemoryLedger ledger_;
  std::unique_ptr<Backend> backend_ = GetParam().make(ledger_);
};

/// Shapes that catch kernels out: nothing, one row, widths below, at and past a vector, and enough for a
/// team.
inline const std::vector<std::pair<int64_t, int64_t>>& OddShapes() {
  static const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {0, 5}, {5, 0}, {1, 1}, {1, 7}, {3, 16}, {2, 17}, {33, 64}, {7, 95}, {131, 257}, {2, 20001}};
  return shapes;
}

}  // namespace metp::testing
