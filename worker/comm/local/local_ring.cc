#include "worker/comm/local/local_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

absl::Status Mismatch(const Hop& hop, int from, int to, std::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat(HopName(hop), " from rank ", from, " to rank ", to, ": ",
                                                 std::string(found),
                                                 "; both ranks must post the same transfers"));
}

absl::Status CopyAll(const Hop& hop, int from, int to, const std::vector<Matrix>& sends,
                     const std::vector<Matrix>& receives) {
  if (sends.size() != receives.size()) {
    return Mismatch(hop, from, to,
                    absl::StrCat(sends.size(), " transfers are sent, ", receives.size(), " expected"));
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    if (sends[i].bytes() != receives[i].bytes()) {
      return Mismatch(hop, from, to,
                      absl::StrCat("transfer ", i, " has ", sends[i].bytes(), " bytes, ", receives[i].bytes(),
                                   " expected"));
    }
    std::memcpy(receives[i].data, sends[i].data, sends[i].bytes());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HopTimes> LocalRing::Run(int rank, const Hop& hop) {
  HopTimes times;
  times.start = times.ready = times.done = Now();
  {
    MutexLock lock(mutex_);
    METP_RETURN_IF_ERROR(Check(rank, rank));
    Station& me = stations_[rank];
    me.at = hop.sequence;
    me.start = times.start;
    me.sends = !hop.exchange.sends.empty();
    me.offer = me.sends ? &hop.exchange.sends : nullptr;
    NotifyNeighbours(rank);
  }
  absl::Status status = Receive(rank, hop, times);

  MutexLock lock(mutex_);
  if (status.ok()) status = AwaitTaken(rank, hop, times);
  // Whatever happened: the buffers are the caller's again only when nobody reads them.
  while (stations_[Next(rank)].copying) stations_[rank].changed.Wait(mutex_);
  stations_[rank].offer = nullptr;
  METP_RETURN_IF_ERROR(status);
  return times;
}

absl::Status LocalRing::Receive(int rank, const Hop& hop, HopTimes& times) {
  if (hop.exchange.receives.empty()) return absl::OkStatus();
  const int from = Previous(rank);
  const std::vector<Matrix>* offer;
  {
    MutexLock lock(mutex_);
    const Station& peer = stations_[from];
    while (peer.at < hop.sequence || (peer.at == hop.sequence && peer.sends && peer.offer == nullptr)) {
      METP_RETURN_IF_ERROR(WaitFor(rank, from, hop));
    }
    METP_RETURN_IF_ERROR(Check(rank, rank));
    if (peer.at > hop.sequence || !peer.sends) return Mismatch(hop, from, rank, "nothing is sent");
    times.ready = std::max(times.ready, peer.start);
    offer = peer.offer;
    stations_[rank].copying = true;
  }
  const absl::Status status = CopyAll(hop, from, rank, *offer, hop.exchange.receives);
  times.done = Now();

  MutexLock lock(mutex_);
  Station& me = stations_[rank];
  me.copying = false;
  if (status.ok()) {
    me.received = hop.sequence;
    me.receive_start = times.start;
    me.receive_done = times.done;
  }
  stations_[from].changed.NotifyAll();
  return status;
}

absl::Status LocalRing::AwaitTaken(int rank, const Hop& hop, HopTimes& times) {
  if (hop.exchange.sends.empty()) return absl::OkStatus();
  const int to = Next(rank);
  const Station& peer = stations_[to];
  while (peer.received < hop.sequence) {
    if (peer.at > hop.sequence) return Mismatch(hop, rank, to, "nothing is expected");
    METP_RETURN_IF_ERROR(WaitFor(rank, to, hop));
  }
  times.ready = std::max(times.ready, peer.receive_start);
  times.done = std::max(times.done, peer.receive_done);
  return absl::OkStatus();
}

absl::Status LocalRing::Check(int rank, int peer) const {
  if (ended_by_ == rank) return reason_;
  if (ended_by_ >= 0) {
    return absl::UnavailableError(absl::StrCat("rank ", ended_by_, " ended the ring: ", reason_.ToString()));
  }
  if (stations_[peer].left) return absl::UnavailableError(absl::StrCat("rank ", peer, " has left the ring"));
  return absl::OkStatus();
}

absl::Status LocalRing::WaitFor(int rank, int peer, const Hop& hop) {
  METP_RETURN_IF_ERROR(Check(rank, peer));
  if (stations_[rank].changed.WaitUntil(mutex_, hop.deadline) || Now() < hop.deadline)
    return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(HopName(hop), ": rank ", rank, " waited for rank ", peer, " until the deadline passed"));
}

void LocalRing::NotifyNeighbours(int rank) {
  stations_[Previous(rank)].changed.NotifyAll();
  stations_[Next(rank)].changed.NotifyAll();
}

void LocalRing::Cancel(int rank, const absl::Status& reason) {
  MutexLock lock(mutex_);
  if (ended_by_ >= 0) return;
  ended_by_ = rank;
  reason_ = reason;
  for (Station& station : stations_) station.changed.NotifyAll();
}

void LocalRing::Leave(int rank) {
  MutexLock lock(mutex_);
  stations_[rank].left = true;
  NotifyNeighbours(rank);
}

}  // namespace metp
