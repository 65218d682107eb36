// The main of suites that run on the emulated device: a test in which a fault was found has failed.

#include <gtest/gtest.h>

#include "tests/cuda_emulation/engine.h"

namespace {

class NoFaults final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    for (const std::string& fault : metp::emulation::TakeFaults()) ADD_FAILURE() << fault;
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new NoFaults);
  return RUN_ALL_TESTS();
}
