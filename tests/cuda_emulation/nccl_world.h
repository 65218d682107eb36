#pragma once

// Where the ranks of one emulated communicator meet: who has joined, the messages on their way, what each rank's state is.
// Held by every rank and by the work that it put on streams. Thread-safe.
//
// A sender leaves a copy of its bytes and its clock, and is done when the receiver took them: the receiver is behind what the
// sender did, never the other way round.

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cuda_emulation/engine.h"

namespace metp::emulation {

/// Bytes of one element; 0 for a type that there is not.
size_t NcclBytes(ncclDataType_t type);

/// One call between ncclGroupStart and ncclGroupEnd.
struct NcclOperation {
  enum class Kind { kSend, kReceive, kSum } kind = Kind::kSend;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = 0;
  int64_t number =
      0;  // among the sends to the peer, the receives from it, or the sums: what makes two calls meet

  size_t bytes() const { return count * NcclBytes(type); }
};

class NcclWorld {
 public:
  /// The one of this id, begun by whoever asks first. It is forgotten when all who joined have left.
  static std::shared_ptr<NcclWorld> Of(const ncclUniqueId& id, int ranks);
  /// All that there are.
  static std::vector<std::shared_ptr<NcclWorld>> All();

  explicit NcclWorld(int ranks) : members_(static_cast<size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(members_.size()); }

  void Join(int rank, int device, int ranks);
  /// ncclInProgress until all have joined and, after Finalize, until all did and the rank's own work is done.
  ncclResult_t State(int rank);
  std::string Error(int rank);
  void WaitWhileInProgress(int rank);

  /// Announces a piece of work, which Run will do and so end.
  void Issue(int rank);
  /// Does a group on the stream's thread; back when every part of it is done, or when the rank aborted or failed.
  void Run(int rank, const std::vector<NcclOperation>& group);

  void Finalize(int rank);
  /// Waits for the rank's own work.
  void Drain(int rank);
  /// Ends the rank's work in hand, and what of it is still to start.
  void Abort(int rank);
  void Leave(const ncclUniqueId& id, int rank);

  /// BreakNccl for the member on this device, if there is one.
  void Break(int device);

 private:
  struct Member {
    bool joined = false, left = false, finalized = false;
    bool aborted = false, broken = false;
    bool failed = false;  // its work was wrong: ended, not waited with
    int device = -1;
    int issued = 0, running = 0;  // pieces of work that are not done; of them those that run
    ncclResult_t error = ncclSuccess;
    std::string text;
  };
  struct Message {
    std::vector<char> bytes;
    ncclDataType_t type = ncclFloat32;
    std::shared_ptr<const Clock> clock;
    int readers = 1;  // who has yet to take it
  };
  /// From whom, to whom, which; sums are to nobody (-1).
  using Key = std::tuple<int, int, int64_t>;

  Member& At(int rank) { return members_[static_cast<size_t>(rank)]; }
  bool Over(int rank) { return At(rank).aborted || At(rank).failed; }
  void FailLocked(int rank, ncclResult_t error, const std::string& text);
  bool AllJoined() const;
  void CheckDevices();
  /// False: the rank's work is over, and `condition` need not hold.
  bool WaitFor(std::unique_lock<std::mutex>& lock, int rank, const std::function<bool()>& condition);
  void Delay(int rank);
  void Exchange(int rank, const std::vector<NcclOperation>& group);
  bool Post(int rank, const NcclOperation& operation);
  bool Receive(int rank, const NcclOperation& operation);
  bool Sum(int rank, const NcclOperation& operation);
  bool AwaitTaken(int rank, const NcclOperation& operation);
  std::shared_ptr<Message> Find(const Key& key);
  void Took(const Key& key);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::map<Key, std::shared_ptr<Message>> messages_;
};

}  // namespace metp::emulation
