#include "tests/e2e/chaos.h"

namespace metp {
namespace {

TEST_F(Chaos, ThreeJobsAndAFewFaults) { Run(/*jobs=*/3, /*steps=*/500, /*faults=*/12); }

}  // namespace
}  // namespace metp
