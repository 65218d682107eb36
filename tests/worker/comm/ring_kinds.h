#pragma once

// Every kind of ring whose ranks can be threads of one process, made behind one function, and the little that
// tests of rings share. A new Communicator joins the conformance suite by a line in RingKinds().

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/communicator.h"

namespace metp {

using Ring = std::vector<std::unique_ptr<Communicator>>;

struct RingKind {
  std::string name;
  std::function<Ring(int size, CommunicatorOptions options)> make;
};

const std::vector<RingKind>& RingKinds();

/// Runs `rank` for every communicator of the ring, each in a thread of its own, and waits for all.
void ForEachRank(Ring& ring, const std::function<void(Communicator&)>& rank);

/// A view of all of `values`, one row.
inline Matrix Row(std::vector<float>& values) {
  const int64_t n = values.size();
  return {values.data(), 1, n, n, DType::kF32};
}
inline Matrix Row(std::vector<double>& values) {
  const int64_t n = values.size();
  return {values.data(), 1, n, n, DType::kF64};
}

}  // namespace metp
