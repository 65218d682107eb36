#include "worker/comm/gloo/gloo_transport.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"

namespace metp {
namespace {

using std::chrono::milliseconds;

TimePoint Now() { return std::chrono::steady_clock::now(); }

milliseconds Left(TimePoint deadline) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - Now()));
}

// A slot says what a message is, so that only the two ends of the same piece of the same hop can meet.
enum Kind : uint64_t { kData, kNoticeToNext, kNoticeToPrevious, kWatch };
constexpr uint64_t kMaxPieces = 1 << 11;

uint64_t Slot(Kind kind, uint64_t sequence = 0, uint64_t piece = 0, int64_t bytes = 0) {
  return kind | static_cast<uint64_t>(bytes) << 2 | piece << 33 | sequence << 44;
}

// How long a farewell may take; what stands before it in a connection may be a large transfer.
constexpr milliseconds kFarewellTime{20};

}  // namespace

GlooTransport::GlooTransport(std::unique_ptr<GlooNeighbours> neighbours, int64_t piece_bytes)
    : neighbours_(std::move(neighbours)), piece_bytes_(std::min(piece_bytes, kPieceBytes)) {
  for (int peer : neighbours_->peers()) {
    Farewell& farewell = farewells_[peer];
    auto buffer = neighbours_->context(peer).createUnboundBuffer(farewell.data(), farewell.size());
    try {
      buffer->recv(peer, Slot(kWatch));
    } catch (const std::exception& e) {
      MutexLock lock(mutex_);
      gone_[peer] = {e.what()};
      continue;
    }
    watches_.emplace(peer, std::move(buffer));
  }
  for (const auto& watch : watches_) watchers_.emplace_back([this, peer = watch.first] { Watch(peer); });
}

GlooTransport::~GlooTransport() {
  for (auto& watch : watches_) watch.second->abortWaitRecv();
  for (std::thread& watcher : watchers_) watcher.join();
  watches_.clear();  // every buffer holds the context
}

void GlooTransport::Watch(int peer) {
  Loss loss;
  try {
    if (!watches_.at(peer)->waitRecv(nullptr, std::chrono::hours(24 * 365))) return;  // this rank is leaving
    Farewell& farewell = farewells_.at(peer);
    farewell.back() = 0;
    loss = {farewell.data(), /*farewell=*/true};
  } catch (const std::exception& e) {
    loss = {e.what()};
  }
  MutexLock lock(mutex_);
  gone_.emplace(peer, loss);
  AbortWaits();
}

absl::Status GlooTransport::Lost(int peer, const Hop& hop, const Loss& loss) const {
  if (loss.farewell) return absl::UnavailableError(loss.what);
  return absl::UnavailableError(
      absl::StrCat("rank ", neighbours_->rank(), " lost rank ", peer, " in ", HopName(hop), ": ", loss.what));
}

void GlooTransport::Cancel(const absl::Status& reason) {
  {
    MutexLock lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = reason;
    AbortWaits();
  }
  End(reason);
}

void GlooTransport::End(const absl::Status& reason) {
  std::map<int, Loss> gone;
  {
    MutexLock lock(mutex_);
    gone = gone_;
  }
  MutexLock lock(end_mutex_);
  Farewell text = {};
  std::list<std::unique_ptr<Buffer>> sent;
  if (!ended_) {
    // "rank 1 lost rank 2 in ..." goes round as it is.
    std::string why(reason.message());
    if (!absl::IsUnavailable(reason))
      why = absl::StrCat("rank ", neighbours_->rank(), " ended the ring: ", reason.ToString());
    why.copy(text.data(), text.size() - 1);
    for (int peer : neighbours_->peers()) {
      if (gone.count(peer) > 0) continue;
      try {
        sent.push_back(neighbours_->context(peer).createUnboundBuffer(text.data(), text.size()));
        sent.back()->send(peer, Slot(kWatch));
      } catch (const std::exception&) {
        sent.pop_back();  // it is gone too
      }
    }
    const TimePoint deadline = Now() + kFarewellTime;
    for (auto& buffer : sent) {
      try {
        buffer->waitSend(nullptr, Left(deadline));
      } catch (const std::exception&) {  // not in time
      }
    }
    ended_ = true;
  }
  neighbours_->Close();
}

void GlooTransport::AbortWaits() {
  if (running_ == nullptr) return;
  for (std::list<Piece>* list : {&running_->arrivals, &running_->pieces}) {
    for (Piece& piece : *list) {
      piece.way == Way::kSend ? piece.buffer->abortWaitSend() : piece.buffer->abortWaitRecv();
    }
  }
}

absl::StatusOr<HopTimes> GlooTransport::Run(const Hop& hop) {
  HopTimes times;
  times.start = times.ready = times.done = Now();
  Running run{hop, {}, {}, {}};
  {
    MutexLock lock(mutex_);
    METP_RETURN_IF_ERROR(cancelled_);
    running_ = &run;
  }
  const absl::Status status = Exchange(run, times);
  if (!status.ok()) End(status);  // before the buffers go
  MutexLock lock(mutex_);
  running_ = nullptr;
  if (!cancelled_.ok()) return cancelled_;
  METP_RETURN_IF_ERROR(status);
  return times;
}

absl::Status GlooTransport::Exchange(Running& run, HopTimes& times) {
  const Hop& hop = run.hop;
  if (!hop.exchange.receives.empty()) {
    METP_RETURN_IF_ERROR(StartEdge(run, Way::kReceive, neighbours_->previous(), hop.exchange.receives));
  }
  if (!hop.exchange.sends.empty()) {
    METP_RETURN_IF_ERROR(StartEdge(run, Way::kSend, neighbours_->next(), hop.exchange.sends));
  }
  if (run.edges.empty()) return absl::OkStatus();

  for (Piece& notice : run.arrivals) METP_RETURN_IF_ERROR(Await(run, notice));
  times.ready = Now();
  for (const Edge& edge : run.edges) {
    if (edge.mine == edge.theirs) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(HopName(hop), " (", hop.sequence, "): this rank moves ", edge.mine.transfers,
                     " transfers of ", edge.mine.bytes, " bytes, rank ", edge.peer, " expects ",
                     edge.theirs.transfers, " of ", edge.theirs.bytes, " bytes, or other sizes one by one (",
                     edge.theirs.sequence, "); both must post the same"));
  }
  for (Piece& piece : run.pieces) METP_RETURN_IF_ERROR(Await(run, piece));
  times.done = Now();
  return absl::OkStatus();
}

GlooTransport::Notice GlooTransport::NoticeOf(const Hop& hop, const std::vector<Matrix>& transfers) {
  Notice notice{hop.sequence, transfers.size(), static_cast<uint64_t>(TotalBytes(transfers)), 0};
  for (const Matrix& m : transfers) notice.digest = notice.digest * 1099511628211u + m.bytes();
  return notice;
}

absl::Status GlooTransport::StartEdge(Running& run, Way way, int peer, const std::vector<Matrix>& transfers) {
  Edge& edge = run.edges.emplace_back(Edge{peer, NoticeOf(run.hop, transfers), {}});
  const bool sends = way == Way::kSend;
  const uint64_t sequence = run.hop.sequence;
  METP_RETURN_IF_ERROR(Start(run, run.pieces, Way::kSend, peer, &edge.mine, sizeof(Notice),
                             Slot(sends ? kNoticeToNext : kNoticeToPrevious, sequence)));
  METP_RETURN_IF_ERROR(Start(run, run.arrivals, Way::kReceive, peer, &edge.theirs, sizeof(Notice),
                             Slot(sends ? kNoticeToPrevious : kNoticeToNext, sequence)));
  uint64_t pieces = 0;
  for (const Matrix& transfer : transfers) {
    for (int64_t at = 0; at < transfer.bytes(); at += piece_bytes_) {
      const int64_t bytes = std::min(piece_bytes_, transfer.bytes() - at);
      if (pieces == kMaxPieces) {
        return absl::InvalidArgumentError(absl::StrCat(HopName(run.hop), ": more than ", kMaxPieces,
                                                       " pieces for rank ", peer, "; post fewer transfers"));
      }
      METP_RETURN_IF_ERROR(Start(run, run.pieces, way, peer, static_cast<char*>(transfer.data) + at, bytes,
                                 Slot(kData, sequence, pieces++, bytes)));
    }
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::Start(Running& run, std::list<Piece>& list, Way way, int peer, void* data,
                                  int64_t bytes, uint64_t slot) {
  Buffer* buffer;
  {
    MutexLock lock(mutex_);
    list.push_back({way, peer, neighbours_->context(peer).createUnboundBuffer(data, bytes)});
    buffer = list.back().buffer.get();
  }
  try {
    way == Way::kSend ? buffer->send(peer, slot) : buffer->recv(peer, slot);
  } catch (const std::exception& e) {
    return Lost(peer, run.hop, {e.what()});
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::Await(Running& run, Piece& piece) {
  while (!piece.done) {
    METP_RETURN_IF_ERROR(Settle(run));
    if (!piece.done) METP_RETURN_IF_ERROR(WaitOnce(run.hop, piece, Left(run.hop.deadline)));
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::Settle(Running& run) {
  std::map<int, Loss> gone;
  {
    MutexLock lock(mutex_);
    METP_RETURN_IF_ERROR(cancelled_);
    gone = gone_;
  }
  for (const auto& [peer, loss] : gone) {
    for (std::list<Piece>* list : {&run.arrivals, &run.pieces}) {
      for (Piece& piece : *list) {
        // Nothing arrives any more; what had arrived counts. The first wait only takes back the watcher's
        // abort.
        for (int i = 0; i < 2 && piece.peer == peer && !piece.done; ++i) {
          if (!WaitOnce(run.hop, piece, milliseconds(1)).ok()) break;
        }
        if (piece.peer == peer && !piece.done) return Lost(peer, run.hop, loss);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GlooTransport::WaitOnce(const Hop& hop, Piece& piece, milliseconds timeout) {
  try {
    piece.done = piece.way == Way::kSend ? piece.buffer->waitSend(nullptr, timeout)
                                         : piece.buffer->waitRecv(nullptr, timeout);
    return absl::OkStatus();
  } catch (const std::exception& e) {
    if (Now() < hop.deadline) return Lost(piece.peer, hop, {e.what()});
    return absl::DeadlineExceededError(absl::StrCat(HopName(hop), ": rank ", neighbours_->rank(),
                                                    " waited for rank ", piece.peer,
                                                    " until the deadline passed: ", e.what()));
  }
}

}  // namespace metp
