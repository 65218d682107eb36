#include "tests/e2e/chaos.h"

namespace metp {
namespace {

TEST_F(Chaos, TenJobsAndAHundredFaults) { Run(/*jobs=*/10, /*steps=*/1000, /*faults=*/100); }

}  // namespace
}  // namespace metp
