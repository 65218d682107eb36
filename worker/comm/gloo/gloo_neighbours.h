#pragma once

// The Gloo side of a rank: a device, and per neighbour a context with one connected pair (for two ranks the
// neighbours are the same one). A context each, because a wait that times out closes all pairs of its
// context. Owned by GlooTransport. Gloo's exceptions stop here and in gloo_transport.cc.
//
// Connecting. Every pair listens on a port of its own. Rank r puts that of its pair towards q under
// "ring/r/q" and waits for "ring/q/r". Edges are then connected in one order on all ranks, lowest first,
// because the side that Gloo makes the listener waits for the other: any other order can wait in a circle.

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace metp {

class GlooNeighbours {
 public:
  /// Listens on `address`, finds the neighbours and connects. InvalidArgument: the address is not a local
  /// one; DeadlineExceeded, Unavailable: a neighbour, named, did not come. size is at least 2.
  static absl::StatusOr<std::unique_ptr<GlooNeighbours>> Connect(int rank, int size,
                                                                 const std::string& address,
                                                                 Rendezvous& rendezvous,
                                                                 std::chrono::milliseconds timeout);
  /// Closes the pairs in good order: what has been sent still arrives.
  ~GlooNeighbours();

  int rank() const { return rank_; }
  int next() const { return (rank_ + 1) % size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }
  /// Both neighbours; one when they are the same.
  std::vector<int> peers() const;
  gloo::transport::Context& context(int peer) { return *contexts_.at(peer); }

  /// Resets the connections: nothing is read into or written from any buffer when this returns, and the
  /// neighbours notice. Any thread, any number of times.
  void Close();

 private:
  GlooNeighbours(int rank, int size) : rank_(rank), size_(size) {}

  const int rank_, size_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::map<int, std::shared_ptr<gloo::transport::Context>> contexts_;
};

}  // namespace metp
