#pragma once

// The fixture of the conformance suite: every test runs for every kind of ring and, unless it says otherwise,
// for rings of one to five ranks. What the tests demand is what communicator.h says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <tuple>

#include "tests/worker/comm/ring_kinds.h"

namespace metp {

class Conformance : public testing::TestWithParam<std::tuple<RingKind, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  Ring Make(CommunicatorOptions options = {std::chrono::seconds(60)}) {
    return std::get<0>(GetParam()).make(size(), options);
  }
};

/// One transfer to the next rank.
inline Exchange Send(const Matrix& m) { return {{m}, {}}; }
/// One transfer from the previous rank.
inline Exchange Receive(const Matrix& m) { return {{}, {m}}; }

/// Something that happens once; the other thread waits for it.
class Moment {
 public:
  void Happens() { promise_.set_value(); }
  void Await() { future_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

inline std::string ConformanceName(const testing::TestParamInfo<std::tuple<RingKind, int>>& info) {
  return std::get<0>(info.param).name + "RingOf" + std::to_string(std::get<1>(info.param));
}

#define METP_CONFORMANCE(suite, ...)                                                                       \
  INSTANTIATE_TEST_SUITE_P(All, suite,                                                                     \
                           testing::Combine(testing::ValuesIn(RingKinds()), testing::Values(__VA_ARGS__)), \
                           ConformanceName)

}  // namespace metp
