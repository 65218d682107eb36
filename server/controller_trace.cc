// The controller's part in traces of jobs.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller.h"

namespace metp {
namespace {

constexpr int kMoreSteps = 4;  // so many times as many are ordered where the ranks had too few in common
constexpr int kMostOrdered = 256;

}  // namespace

void Controller::Trace(const std::string& id, const std::shared_ptr<TraceSession>& session) {
  const absl::StatusOr<v1::JobStatus> status = jobs_.Get(id);
  if (!status.ok()) return session->End(status.status());
  if (status->state() != v1::JobStatus::RUNNING) {
    return session->End(absl::FailedPreconditionError(
        absl::StrCat("job ", id, ": found ", v1::JobStatus::State_Name(status->state()),
                     ", expected RUNNING: only what trains can be traced")));
  }
  Tracing& tracing = traces_[status->attempt()];
  if (tracing.session.lock() != nullptr) {
    return session->End(absl::ResourceExhaustedError(
        absl::StrCat("job ", id, " is being traced already, and one trace at a time is all it does")));
  }
  tracing = {session, status->ranks_size(), session->steps()};
  OrderTrace(status->attempt(), tracing, *session);
}

void Controller::OrderTrace(const std::string& attempt, const Tracing& tracing, TraceSession& session) {
  session.Ordered(tracing.ranks, tracing.steps + kMoreTracedSteps);
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (rank.attempt == attempt) SendTraceOrder(rank);
  }
}

void Controller::SendTraceOrder(const LiveRank& rank) {
  const auto found = traces_.find(rank.attempt);
  if (found == traces_.end() || found->second.session.expired()) return;
  SendTraceSteps(rank, found->second.steps);
}

void Controller::SendTraceSteps(const LiveRank& rank, int steps) {
  v1::ToWorker message;
  message.mutable_trace()->set_attempt(rank.attempt);
  message.mutable_trace()->set_rank(rank.rank);
  message.mutable_trace()->mutable_order()->set_steps(steps);
  workers_.Send(rank.worker, std::move(message));
}

void Controller::StopTracing(const std::string& attempt, std::optional<int> only) {
  for (const LiveRank& rank : jobs_.LiveRanks()) {
    if (rank.attempt == attempt && (!only.has_value() || rank.rank == *only)) SendTraceSteps(rank, 0);
  }
}

void Controller::TakeTrace(const std::string& attempt, const v1::TracePart& part) {
  const auto found = traces_.find(attempt);
  if (found == traces_.end()) {  // more than was wanted: the rank has not heard, or not yet
    if (part.last()) StopTracing(attempt, part.rank());
    return;
  }
  const std::shared_ptr<TraceSession> session = found->second.session.lock();
  const TraceSession::Progress progress =
      session == nullptr ? TraceSession::Progress::kDone : session->Add(part);
  if (progress == TraceSession::Progress::kDone) {
    traces_.erase(found);
    StopTracing(attempt);
  } else if (progress == TraceSession::Progress::kOrderMore) {
    found->second.steps = std::min(kMostOrdered, kMoreSteps * found->second.steps);
    OrderTrace(attempt, found->second, *session);
  }
}

void Controller::EndTrace(const std::string& attempt) {
  const auto found = traces_.find(attempt);
  if (found == traces_.end()) return;
  if (const std::shared_ptr<TraceSession> session = found->second.session.lock(); session != nullptr) {
    session->End(absl::FailedPreconditionError(
        absl::StrCat(attempt, " has ended before its ranks had sent ", session->steps(),
                     session->steps() == 1 ? " whole step" : " whole steps in a row")));
  }
  traces_.erase(found);
}

}  // namespace metp
