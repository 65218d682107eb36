#pragma once

// p ranks as threads of the test, joined in a local ring.

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "worker/comm/communicator.h"

namespace metp::testing {

/// Runs body(rank, communicator) on p threads; a StepError ends the ring and fails the current test.
inline void RunLocalRanks(int p, const std::function<void(int, Communicator&)>& body) {
  auto communicators = MakeLocalCommunicators(p);
  std::vector<std::thread> threads;
  for (int r = 0; r < p; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r, *communicators[r]);
      } catch (const StepError& error) {
        communicators[r]->Abort(error.status());
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace metp::testing
