#include "server/rank_end.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// What a rank says when a neighbour or the network failed it.
bool IsConsequence(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kCancelled;
}

}  // namespace

RankEnd Explain(const std::string& worker, int rank, const v1::RankEnded& ended) {
  const std::string who = absl::StrCat("rank ", rank, " on worker ", worker, ": ");
  if (ended.has_result() && ended.result().code() == 0 && ended.clean()) return {EndKind::kDone, kDoneEnd};
  if (ended.has_result() && ended.result().code() != 0) {
    const auto code = static_cast<absl::StatusCode>(ended.result().code());
    const std::string what =
        absl::StrCat(who, absl::StatusCodeToString(code), ": ", ended.result().message());
    if (IsConsequence(code)) return {ended.stopped() ? EndKind::kStopped : EndKind::kConsequence, what};
    return {EndKind::kError, what};
  }
  if (ended.stopped()) return {EndKind::kStopped, absl::StrCat(who, "stopped, ", ended.how())};
  if (ended.has_result()) {
    return {EndKind::kDeath, absl::StrCat(who, ended.how(), " after it had reported success")};
  }
  return {EndKind::kDeath, absl::StrCat(who, ended.how())};
}

}  // namespace metp
