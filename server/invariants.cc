#include "server/invariants.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/support/status_macros.h"
#include "server/job_table.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

absl::Status Broken(const v1::JobRecord& record, const std::string& what) {
  return absl::InternalError(absl::StrCat("job ", record.status().id(), " (",
                                          v1::JobStatus::State_Name(record.status().state()), "): ", what));
}

absl::Status CheckOne(const v1::JobRecord& record) {
  const v1::JobStatus& status = record.status();
  const auto count = [&status](v1::RankStatus::State state) {
    return std::count_if(status.ranks().begin(), status.ranks().end(),
                         [state](const v1::RankStatus& rank) { return rank.state() == state; });
  };
  const bool terminal = IsTerminal(status.state());
  if (terminal != status.has_finished()) return Broken(record, "ended and the time of its end disagree");
  if (terminal && status.stopping()) return Broken(record, "ended and still stopping");
  if (status.state() == v1::JobStatus::QUEUED || terminal) {
    if (count(v1::RankStatus::GONE) != status.ranks_size())
      return Broken(record, "has ranks that are not gone");
  } else {
    if (status.ranks_size() != RanksOf(status.plan()))
      return Broken(record, "has not as many ranks as its plan");
    if (count(v1::RankStatus::GONE) == status.ranks_size()) return Broken(record, "has no rank left");
    for (const v1::RankStatus& rank : status.ranks()) {
      if (rank.worker().empty())
        return Broken(record, absl::StrCat("rank ", rank.rank(), " is on no worker"));
    }
  }
  if (status.state() == v1::JobStatus::RUNNING && !status.stopping() && count(v1::RankStatus::ASSIGNED) > 0) {
    return Broken(record, "runs with ranks that have not started");
  }
  const std::string attempt = record.attempts() == 0 ? "" : absl::StrCat(status.id(), "/", record.attempts());
  if (status.attempt() != attempt) {
    return Broken(record, absl::StrCat("is at attempt '", status.attempt(), "', expected '", attempt, "'"));
  }
  if (status.step() < 0 || status.step() > status.job().train().steps())
    return Broken(record, "is at no step it has");
  return absl::OkStatus();
}

}  // namespace

absl::Status Invariants::Check(const std::vector<v1::JobRecord>& jobs) {
  std::set<std::string> ids, requests, workers;
  std::set<int64_t> sequences;
  for (const v1::JobRecord& record : jobs) {
    const v1::JobStatus& status = record.status();
    if (!ids.insert(status.id()).second) return Broken(record, "its id is not unique");
    if (!sequences.insert(record.sequence()).second) return Broken(record, "its sequence is not unique");
    if (!requests.insert(record.request_id()).second) return Broken(record, "its request id is not unique");
    METP_RETURN_IF_ERROR(CheckOne(record));
    for (const v1::RankStatus& rank : status.ranks()) {
      if (rank.state() == v1::RankStatus::GONE) continue;
      if (!workers.insert(rank.worker()).second) {
        return Broken(record, absl::StrCat("worker ", rank.worker(), " holds two ranks"));
      }
    }
    const auto before = ended_.find(status.id());
    if (before != ended_.end()) {
      const v1::JobRecord& old = before->second;
      if (old.status().state() != status.state() || old.status().reason() != status.reason() ||
          old.attempts() != record.attempts()) {
        return Broken(record, absl::StrCat("had ended as ", v1::JobStatus::State_Name(old.status().state())));
      }
    } else if (IsTerminal(status.state())) {
      ended_[status.id()] = record;
    }
  }
  return absl::OkStatus();
}

}  // namespace metp
