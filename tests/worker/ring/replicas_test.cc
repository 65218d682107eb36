// Rings beside each other: every element's sum ends on one rank of the R that hold it, and what each owns reaches all.

#include "worker/ring/replicas.h"

#include <gtest/gtest.h>

#include "tests/support/local_ranks.h"
#include "tests/support/recording_backend.h"

namespace metp::testing {
namespace {

float Value(int rank, int64_t i) {
  return static_cast<float>((rank + 1) * (i % 1000 + 1));
}  // sums are exact

void ExpectSumsAndCopies(int rings, int64_t n) {
  SCOPED_TRACE(::testing::Message() << rings << " rings, " << n << " elements");
  RunLocalRings(1, rings, [&](int rank, Communicator&, Communicator* across) {
    MemoryLedger ledger;
    const auto backend = MakeCpuBackend(1, ledger);
    Replicas replicas(*backend, across);
    ASSERT_EQ(replicas.size(), rings);
    ASSERT_EQ(replicas.rank(), rank);
    const Tensor flat = backend->Allocate(1, n, DType::kF32, MemoryCategory::kGradients);
    for (int64_t i = 0; i < n; ++i) flat->f32()[i] = Value(rank, i);
    replicas.ReduceScatter(flat);
    const Range own = replicas.Own(n);
    int64_t wrong = 0;
    const int all = rings * (rings + 1) / 2;
    for (int64_t i = own.begin; i < own.end; ++i) wrong += flat->f32()[i] != all * Value(0, i);
    EXPECT_EQ(wrong, 0);

    for (int64_t i = own.begin; i < own.end; ++i) flat->f32()[i] = -Value(rank, i);
    replicas.Gather(flat);
    for (int owner = 0; owner < rings; ++owner) {
      const Range part = Part(n, rings, owner);
      for (int64_t i = part.begin; i < part.end; ++i) wrong += flat->f32()[i] != -Value(owner, i);
    }
    EXPECT_EQ(wrong, 0);
    const PassTable times = replicas.TakeTimes();
    EXPECT_EQ(times[static_cast<int>(Pass::kReplicas)].hops > 0, rings > 1 && n > 0);
  });
}

TEST(Replicas, SumAndShareWhateverTheSizes) {
  for (int rings : {1, 2, 3, 5}) {
    for (int64_t n : {0, 1, 4, 5, 1003}) ExpectSumsAndCopies(rings, n);
  }
}

TEST(Replicas, SendLongArenasInChunks) { ExpectSumsAndCopies(2, (int64_t{17} << 20) + 3); }

TEST(Replicas, LeaveNoTwoAccessesUnordered) {
  for (int rings : {2, 3, 4}) {
    Recorder recorder;
    RecordingBackend backend(recorder);
    RecordingCommunicator across(recorder, 1, rings);
    Replicas replicas(backend, &across);
    const Tensor gradients = backend.Allocate(1, 100, DType::kF32, MemoryCategory::kGradients);
    const Tensor weights = backend.Allocate(1, 100, DType::kF32, MemoryCategory::kWeights);
    const Range own = replicas.Own(100);
    backend.Fill(gradients, 1);
    replicas.ReduceScatter(gradients);
    backend.AdamW({}, gradients->Cols(own.begin, own.end), gradients->Cols(own.begin, own.end),
                  gradients->Cols(own.begin, own.end), weights->Cols(own.begin, own.end));
    replicas.Gather(weights);
    backend.Fill(weights, 0);
    EXPECT_TRUE(recorder.Races().empty()) << rings << " rings";
    EXPECT_FALSE(recorder.communication.empty());
  }
}

}  // namespace
}  // namespace metp::testing
