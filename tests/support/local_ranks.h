#pragma once

// Ranks as threads of the test, joined in local rings.

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "worker/comm/communicator.h"

namespace metp::testing {

/// Runs body(rank, ring, across) on a thread for each of p x rings ranks; `across` is null with one ring. A StepError
/// ends the rank's rings and fails the current test.
inline void RunLocalRings(int p, int rings,
                          const std::function<void(int, Communicator&, Communicator*)>& body) {
  std::vector<std::vector<std::unique_ptr<Communicator>>> ring, across;  // [ring][place], [place][ring]
  for (int i = 0; i < rings; ++i) ring.push_back(MakeLocalCommunicators(p));
  for (int place = 0; place < p && rings > 1; ++place) across.push_back(MakeLocalCommunicators(rings));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < p * rings; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& own = *ring[rank / p][rank % p];
      Communicator* others = rings > 1 ? across[rank % p][rank / p].get() : nullptr;
      try {
        body(rank, own, others);
      } catch (const StepError& error) {
        own.Abort(error.status());
        if (others != nullptr) others->Abort(error.status());
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// One ring: body(rank, communicator) on p threads.
inline void RunLocalRanks(int p, const std::function<void(int, Communicator&)>& body) {
  RunLocalRings(p, 1, [&](int rank, Communicator& ring, Communicator*) { body(rank, ring); });
}

}  // namespace metp::testing
