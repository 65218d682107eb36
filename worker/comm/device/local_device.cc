#include "worker/comm/device/local_device.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "worker/backend/cuda/cuda_error.h"

namespace metp::cuda {
namespace {

absl::Status Mismatch(HopId hop, int from, int to, const std::string& found) {
  return absl::InvalidArgumentError(absl::StrCat("hop ", hop, " from rank ", from, " to rank ", to, ": ",
                                                 found, "; both ranks must post the same transfers"));
}

}  // namespace

void LocalDeviceRing::Join(int rank, std::shared_ptr<CommunicationStream> stream, HopListener* listener) {
  MutexLock lock(mutex_);
  stations_[rank].stream = std::move(stream);
  stations_[rank].listener = listener;
}

absl::Status LocalDeviceRing::Enqueue(int rank, DeviceHop hop) {
  MutexLock lock(mutex_);
  METP_RETURN_IF_ERROR(Check(rank));
  stations_[rank].queue.push_back({std::move(hop), {}, false, {}});
  const absl::Status status = Caught([this]() METP_ATTRIBUTE(no_thread_safety_analysis) {
    AdvanceAll();
    return absl::OkStatus();
  });
  if (!status.ok()) EndWith(rank, status);
  return Check(rank);
}

void LocalDeviceRing::AdvanceAll() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < size_ && ended_by_ < 0; ++rank) {
      while (ended_by_ < 0 && Advance(rank)) moved = true;
    }
  }
}

bool LocalDeviceRing::Advance(int rank) {
  Station& me = stations_[rank];
  if (me.queue.empty()) return false;
  Queued& mine = me.queue.front();
  const Exchange& exchange = mine.hop.exchange;
  if (!mine.ready) {
    me.stream->WaitFor(mine.hop.after);
    mine.ready = me.stream->Record();
    me.listener->Started(mine.hop.id, *mine.ready);
    return true;
  }
  if (!mine.received && !exchange.receives.empty()) return TryReceive(rank, mine);
  if (!exchange.sends.empty()) {
    if (!mine.taken) {
      const Station& next = stations_[Next(rank)];
      if (next.enqueued >= mine.hop.id)
        EndWith(Next(rank), Mismatch(mine.hop.id, rank, Next(rank), "nothing is expected"));
      return false;
    }
    me.stream->WaitFor(*mine.taken);
  }
  me.enqueued = mine.hop.id;
  me.listener->Enqueued(mine.hop.id, me.stream->Record());
  me.queue.pop_front();
  return true;
}

bool LocalDeviceRing::TryReceive(int rank, Queued& mine) {
  const int from = Previous(rank);
  Station& peer = stations_[from];
  const HopId hop = mine.hop.id;
  if (peer.enqueued < hop &&
      (peer.queue.empty() || peer.queue.front().hop.id < hop || !peer.queue.front().ready))
    return false;
  // A hop of which everything is enqueued had nothing for this rank.
  Queued* theirs = peer.enqueued < hop ? &peer.queue.front() : nullptr;
  const std::vector<Matrix>* sends = theirs != nullptr ? &theirs->hop.exchange.sends : nullptr;
  const absl::Status same = Compare(from, rank, hop, sends, mine.hop.exchange.receives);
  if (!same.ok()) {
    EndWith(rank, same);
    return false;
  }
  CommunicationStream& stream = *stations_[rank].stream;
  stream.WaitFor(*theirs->ready);
  for (size_t i = 0; i < sends->size(); ++i) {
    METP_CUDA(cudaMemcpyAsync(mine.hop.exchange.receives[i].data, (*sends)[i].data, (*sends)[i].bytes(),
                              cudaMemcpyDeviceToDevice, stream.stream()));
  }
  theirs->taken = events_.Record(stream.stream());
  mine.received = true;
  return true;
}

absl::Status LocalDeviceRing::Compare(int from, int to, HopId hop, const std::vector<Matrix>* sends,
                                      const std::vector<Matrix>& receives) const {
  if (sends == nullptr || sends->empty()) return Mismatch(hop, from, to, "nothing is sent");
  if (sends->size() != receives.size()) {
    return Mismatch(hop, from, to,
                    absl::StrCat(sends->size(), " transfers are sent, ", receives.size(), " expected"));
  }
  for (size_t i = 0; i < receives.size(); ++i) {
    const int64_t sent = (*sends)[i].bytes(), expected = receives[i].bytes();
    if (sent == expected) continue;
    return Mismatch(hop, from, to,
                    absl::StrCat("transfer ", i, " has ", sent, " bytes, ", expected, " expected"));
  }
  return absl::OkStatus();
}

absl::Status LocalDeviceRing::Check(int rank) const {
  if (ended_by_ == rank) return reason_;
  if (ended_by_ >= 0) {
    return absl::UnavailableError(absl::StrCat("rank ", ended_by_, " ended the ring: ", reason_.ToString()));
  }
  if (stations_[rank].queue.empty()) return absl::OkStatus();
  const Queued& mine = stations_[rank].queue.front();
  const bool receives = !mine.received && !mine.hop.exchange.receives.empty();
  const bool sends = !mine.taken && !mine.hop.exchange.sends.empty();
  for (const auto& [needed, peer] : {std::pair(receives, Previous(rank)), std::pair(sends, Next(rank))}) {
    if (needed && stations_[peer].left) {
      return absl::UnavailableError(absl::StrCat("rank ", peer, " has left the ring, hop ", mine.hop.id,
                                                 " of rank ", rank, " needs it"));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalDeviceRing::Poll(int rank) {
  MutexLock lock(mutex_);
  return Check(rank);
}

void LocalDeviceRing::EndWith(int rank, const absl::Status& reason) {
  if (ended_by_ >= 0) return;
  ended_by_ = rank;
  reason_ = reason;
}

void LocalDeviceRing::Cancel(int rank, const absl::Status& reason) {
  MutexLock lock(mutex_);
  EndWith(rank, reason);
  Station& me = stations_[rank];
  if (!me.queue.empty() && me.queue.front().taken)
    cudaStreamWaitEvent(me.stream->stream(), Handle(*me.queue.front().taken), 0);
}

void LocalDeviceRing::Leave(int rank) {
  MutexLock lock(mutex_);
  stations_[rank] = {};
  stations_[rank].left = true;
}

}  // namespace metp::cuda
