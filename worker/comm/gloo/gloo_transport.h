#pragma once

// Hops over Gloo's TCP pairs. Run is called by the communicator's communication thread, Cancel by any; one
// watcher thread per neighbour notices that it is gone; Gloo's own loop thread moves the bytes.
//
// A hop, on both sides of an edge that has something to move:
//   1. notices: sender and receiver tell each other that they have come to this hop, with the bytes they
//      expect to move. `ready` is the arrival of the last notice, or the start where that was later.
//   2. data: one unbound buffer per transfer, cut into pieces of at most `piece_bytes`. Gloo moves a piece only
//      when both sides have posted it, and a slot includes the piece's size, so that pieces of unequal size
//      never meet.
//   3. done: all receives in place, all sends taken by the socket.
// Nothing waits between 1 and 2, so a notice costs no latency. It takes one to arrive, though: a hop's
// communication time can be understated, and its skew overstated, by as much (some 50 us on one machine).
//
// A lost neighbour. Gloo does not tell the buffer whose transfer is in progress. So each watcher waits for a
// message that a healthy neighbour never sends; when Gloo ends that wait with an exception, the neighbour is
// gone and the watcher aborts the waits of the running hop. A hop that had everything already is not
// disturbed, and neither is a rank that has nothing more to move: a neighbour that leaves after the last hop
// is no failure.
//
// A rank that fails says why in that message, the farewell, before it resets its connections, and passes on
// what it was told itself: so all ranks name the one where it began. A farewell that cannot get through in
// time is given up.

#include <array>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/support/mutex.h"
#include "worker/comm/gloo/gloo_neighbours.h"
#include "worker/comm/transport.h"

namespace metp {

class GlooTransport final : public Transport {
 public:
  static constexpr int64_t kPieceBytes = int64_t{1} << 30;

  explicit GlooTransport(std::unique_ptr<GlooNeighbours> neighbours, int64_t piece_bytes = kPieceBytes);
  ~GlooTransport() override;

  absl::StatusOr<HopTimes> Run(const Hop& hop) override;
  void Cancel(const absl::Status& reason) override;

 private:
  using Buffer = gloo::transport::UnboundBuffer;
  enum class Way { kSend, kReceive };
  /// Something on its way to or from `peer`.
  struct Piece {
    Way way;
    int peer;
    std::unique_ptr<Buffer> buffer;
    bool done = false;
  };
  /// What both sides of an edge say when they come to a hop; must agree.
  struct Notice {
    uint64_t sequence = 0, transfers = 0, bytes = 0, digest = 0;
    bool operator==(const Notice&) const = default;
  };
  /// One edge's notices: mine, and theirs when it has arrived.
  struct Edge {
    int peer;
    Notice mine, theirs;
  };
  /// Why a neighbour is lost: what Gloo said, or the farewell it sent.
  struct Loss {
    std::string what;
    bool farewell = false;
  };
  struct Running {
    const Hop& hop;
    std::list<Edge> edges;
    std::list<Piece> arrivals;  // the neighbours' notices
    std::list<Piece> pieces;    // own notices and the data
  };

  static Notice NoticeOf(const Hop& hop, const std::vector<Matrix>& transfers);
  absl::Status StartEdge(Running& run, Way way, int peer, const std::vector<Matrix>& transfers)
      METP_EXCLUDES(mutex_);
  absl::Status Start(Running& run, std::list<Piece>& list, Way way, int peer, void* data, int64_t bytes,
                     uint64_t slot) METP_EXCLUDES(mutex_);
  absl::Status Exchange(Running& run, HopTimes& times) METP_EXCLUDES(mutex_);
  absl::Status Await(Running& run, Piece& piece) METP_EXCLUDES(mutex_);
  /// Ends a hop that was cancelled, or whose unfinished pieces depend on a lost neighbour.
  absl::Status Settle(Running& run) METP_EXCLUDES(mutex_);
  /// One wait. Sets piece.done; leaves it unset when the wait was aborted.
  absl::Status WaitOnce(const Hop& hop, Piece& piece, std::chrono::milliseconds timeout)
      METP_EXCLUDES(mutex_);
  absl::Status Lost(int peer, const Hop& hop, const Loss& loss) const;
  void AbortWaits() METP_REQUIRES(mutex_);
  /// Tells the neighbours why, once, and closes the connections.
  void End(const absl::Status& reason) METP_EXCLUDES(mutex_, end_mutex_);
  void Watch(int peer) METP_EXCLUDES(mutex_);

  const std::unique_ptr<GlooNeighbours> neighbours_;
  const int64_t piece_bytes_;

  Mutex mutex_;
  Running* running_ METP_GUARDED_BY(mutex_) = nullptr;  // the hop that Run is at
  std::map<int, Loss> gone_ METP_GUARDED_BY(mutex_);
  absl::Status cancelled_ METP_GUARDED_BY(mutex_);

  Mutex end_mutex_;
  bool ended_ METP_GUARDED_BY(end_mutex_) = false;

  using Farewell = std::array<char, 256>;  // text, zero-terminated
  std::map<int, Farewell> farewells_;      // as they would arrive, by neighbour
  std::map<int, std::unique_ptr<Buffer>> watches_;
  std::vector<std::thread> watchers_;
};

}  // namespace metp
