// The memory ledger: what is held, what the peak was, and the capacity.

#include "worker/telemetry/ledger.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

namespace metp {
namespace {

using enum MemoryCategory;
using ::testing::HasSubstr;

int64_t Of(const BytesByCategory& bytes, MemoryCategory category) {
  return bytes[static_cast<int>(category)];
}

TEST(Ledger, CountsByCategory) {
  MemoryLedger ledger;
  ASSERT_TRUE(ledger.Take(kWeights, "", 100).ok());
  ASSERT_TRUE(ledger.Take(kRing, "", 30).ok());
  ledger.Release(kWeights, "", 40);
  EXPECT_EQ(Of(ledger.current(), kWeights), 60);
  EXPECT_EQ(Of(ledger.current(), kRing), 30);
  EXPECT_EQ(ledger.current_total(), 90);
  EXPECT_EQ(ledger.peak_total(), 130);
}

TEST(Ledger, RefusesToPassItsCapacity) {
  MemoryLedger ledger(100);
  ASSERT_TRUE(ledger.Take(kWeights, "", 70).ok());
  const absl::Status refused = ledger.Take(kTransient, "scores", 31);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("31 bytes of transient, 70 of 100 are held"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("weights 70"));
  EXPECT_EQ(ledger.current_total(), 70);
  EXPECT_EQ(ledger.peak_total(), 70);
  EXPECT_EQ(ledger.tag_peak("scores"), 0);
  EXPECT_TRUE(ledger.Take(kTransient, "scores", 30).ok());
}

TEST(Ledger, KeepsWhatWasHeldAtThePeak) {
  MemoryLedger ledger;
  ASSERT_TRUE(ledger.Take(kActivations, "", 50).ok());
  ASSERT_TRUE(ledger.Take(kTransient, "", 20).ok());
  ledger.Release(kTransient, "", 20);
  ASSERT_TRUE(ledger.Take(kGradients, "", 10).ok());
  EXPECT_EQ(Of(ledger.at_peak(), kActivations), 50);
  EXPECT_EQ(Of(ledger.at_peak(), kTransient), 20);
  EXPECT_EQ(Of(ledger.at_peak(), kGradients), 0);
}

TEST(Ledger, TagsHaveAPeakOfTheirOwn) {
  MemoryLedger ledger;
  ASSERT_TRUE(ledger.Take(kTransient, "scores", 8).ok());
  ASSERT_TRUE(ledger.Take(kWorkspace, "scores", 4).ok());
  ledger.Release(kTransient, "scores", 8);
  ASSERT_TRUE(ledger.Take(kTransient, "", 1000).ok());
  EXPECT_EQ(ledger.tag_peak("scores"), 12);
  EXPECT_EQ(ledger.tag_peak("never used"), 0);
}

TEST(Ledger, ResetStartsPeaksFromWhatIsHeld) {
  MemoryLedger ledger;
  ASSERT_TRUE(ledger.Take(kTransient, "tile", 90).ok());
  ledger.Release(kTransient, "tile", 60);
  ledger.ResetPeaks();
  EXPECT_EQ(ledger.peak_total(), 30);
  EXPECT_EQ(Of(ledger.at_peak(), kTransient), 30);
  EXPECT_EQ(ledger.tag_peak("tile"), 30);
}

TEST(Ledger, AddsUpUnderManyThreads) {
  MemoryLedger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger] {
      for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(ledger.Take(kTransient, "t", 3).ok());
        if (i % 2 == 0) ledger.Release(kTransient, "t", 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.current_total(), 4 * 500 * 3);
  EXPECT_GE(ledger.peak_total(), ledger.current_total());
}

}  // namespace
}  // namespace metp
