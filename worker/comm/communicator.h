#pragma once

// The ring between ranks: one hop is one group of sends to the next rank and receives from the previous one,
// run on a communication stream of its own. One Communicator per rank.
//
// Order. Hops run one after the other in the order posted, each after the compute-stream point it was given.
// All ranks post the same hops in the same order, and the i-th send of a hop meets the i-th receive of the
// next rank's same hop; sizes must agree (both sides know them; a transfer of zero bytes is left out on
// both).
//
// Done. A hop is done when its receives are readable and its send buffers may be overwritten: on local, when
// both copies are made; on gloo, when the socket layer has taken the sent bytes and all received bytes are in
// place; on nccl, when the event behind the group has passed. It does not mean that the next rank has used
// what was sent.
//
// Failure. The first failure (a peer gone, a deadline passed, Abort) ends the communicator: it is the result
// of every call from then on, on this rank at once and on the neighbours as soon as they notice, within 100
// ms for a killed peer. Buffers of a failed hop may be written until the communicator is destroyed.
//
// Threads. Post, Await, AllReduce, Barrier and TakeRecords from the compute thread; Abort from any.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace metp {

struct Exchange {
  std::vector<Matrix> sends;     // to rank + 1; contiguous
  std::vector<Matrix> receives;  // from rank - 1; contiguous
  bool empty() const { return sends.empty() && receives.empty(); }
};

using HopId = uint64_t;  // counts from 1

/// What one hop cost, once it is done and awaited. Seconds.
struct HopRecord {
  HopId hop = 0;
  int64_t sent_bytes = 0;
  double communication = 0;  // from the moment both sides were ready to done
  double exposed = 0;        // of that, what the compute stream stood through in Await
  double start = 0;          // when both sides were ready, on the clock of Event::seconds where there is one
  double skew = 0;           // the compute stream stood in Await for a neighbour that was not ready yet
  double stood = 0;  // since when it stood, first for the neighbour and then exposed; on the clock of `start`
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Queues one hop behind the hops before it and behind `after` of the compute stream, and does not wait for
  /// them. NCCL may keep the caller a moment while it issues a hop, at most until the deadline of a call.
  virtual HopId Post(Exchange exchange, const Event& after) = 0;
  /// The compute stream waits until `hop` is done. Unavailable: a peer is gone (named); DeadlineExceeded;
  /// after Abort its reason. Once it has failed, nothing touches the buffers of any hop any more. On a device
  /// only what is known by then is returned: a hop that fails later fails the next call.
  virtual absl::Status Await(HopId hop) = 0;

  /// Sums `values` over all ranks, in place, the same bits on every rank. fp32 or fp64, contiguous, in the
  /// backend's memory or the host's. Blocks.
  virtual absl::Status AllReduce(const Matrix& values) = 0;
  virtual absl::Status Barrier() = 0;

  /// Ends the communicator with `reason`; blocked calls return. Idempotent: the first reason stays.
  virtual void Abort(absl::Status reason) = 0;

  /// Records of the hops awaited since the last call, in order. On a device this is where times are read back
  /// and compared with the neighbours': it waits for the compute stream, and all ranks call it at the same
  /// points, having posted and awaited the same hops.
  virtual std::vector<HopRecord> TakeRecords() = 0;
};

/// Time that any single hop, all-reduce or barrier may take before it fails.
struct CommunicatorOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
};

/// p ranks as threads of one process. Each communicator is handed to its rank's thread.
std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(int size, CommunicatorOptions options = {});

/// Where ranks find each other before they are connected: one key-value space per attempt. See worker/rank/.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  /// Blocks until the key has been put by any rank, or the deadline passes.
  virtual absl::StatusOr<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

/// One rank of a ring over TCP through Gloo, connected to its two neighbours only. `address`: local address
/// to listen on, reachable from the neighbours. Blocks until connected or the deadline has passed.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(int rank, int size,
                                                                   const std::string& address,
                                                                   Rendezvous& rendezvous,
                                                                   CommunicatorOptions options = {});

}  // namespace metp
