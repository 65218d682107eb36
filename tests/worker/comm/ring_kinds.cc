#include "tests/worker/comm/ring_kinds.h"

#include <gtest/gtest.h>

#include "worker/comm/gloo/gloo_neighbours.h"
#include "worker/comm/gloo/gloo_transport.h"
#include "worker/comm/gloo/sigpipe.h"
#include "worker/comm/host_communicator.h"
#include "worker/rank/rendezvous.h"

namespace metp {
namespace {

/// Ranks over loopback. Connecting has time enough, whatever deadline the test asks for its hops.
Ring MakeGlooRing(int size, CommunicatorOptions options, int64_t piece_bytes) {
  if (size == 1) return MakeLocalCommunicators(1, options);
  LocalRendezvous rendezvous;
  Ring ring(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const SigpipeBlock no_sigpipe;
      auto neighbours =
          GlooNeighbours::Connect(rank, size, "127.0.0.1", rendezvous, std::chrono::seconds(60));
      ASSERT_TRUE(neighbours.ok()) << neighbours.status();
      ring[rank] = std::make_unique<HostCommunicator>(
          rank, size, std::make_unique<GlooTransport>(*std::move(neighbours), piece_bytes), options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ring;
}

Ring MakeGlooRingOfWholes(int size, CommunicatorOptions options) {
  return MakeGlooRing(size, options, GlooTransport::kPieceBytes);
}

/// Transfers cut into small pieces, as those of gigabytes are.
Ring MakeGlooRingOfPieces(int size, CommunicatorOptions options) {
  return MakeGlooRing(size, options, 100'000);
}

}  // namespace

const std::vector<RingKind>& RingKinds() {
  static const std::vector<RingKind> kinds = {{"Local", MakeLocalCommunicators},
                                              {"Gloo", MakeGlooRingOfWholes},
                                              {"GlooPieces", MakeGlooRingOfPieces}};
  return kinds;
}

void ForEachRank(Ring& ring, const std::function<void(Communicator&)>& rank) {
  std::vector<std::thread> threads;
  for (auto& communicator : ring) threads.emplace_back([&] { rank(*communicator); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace metp
