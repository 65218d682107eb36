#include "server/rank_end.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// What a rank says when a neighbour or the network failed it.
bool IsConsequence(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kCancelled;
}

/// What does not change by itself: the job, the data, a loss that is not finite, checkpoints that do not fit.
bool IsFinal(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Outranks(EndKind a, EndKind b) { return std::min(a, EndKind::kError) > std::min(b, EndKind::kError); }

RankEnd Explain(const std::string& worker, int rank, const v1::RankEnded& ended) {
  const std::string who = absl::StrCat("rank ", rank, " on worker ", worker, ": ");
  if (ended.has_result() && ended.result().code() == 0 && ended.clean()) {
    if (!ended.result().interrupted()) return {EndKind::kDone, kDoneEnd};
    return {EndKind::kInterrupted,
            absl::StrCat(who, ended.left() ? "left, as its worker was asked to" : "left in good order")};
  }
  if (ended.left()) return {EndKind::kInterrupted, absl::StrCat(who, ended.how())};
  if (ended.has_result() && ended.result().code() != 0) {
    const auto code = static_cast<absl::StatusCode>(ended.result().code());
    const std::string what =
        absl::StrCat(who, absl::StatusCodeToString(code), ": ", ended.result().message());
    if (IsConsequence(code)) return {ended.stopped() ? EndKind::kStopped : EndKind::kConsequence, what};
    return {EndKind::kError, what, IsFinal(code)};
  }
  if (ended.stopped()) return {EndKind::kStopped, absl::StrCat(who, "stopped, ", ended.how())};
  if (ended.has_result()) {
    return {EndKind::kDeath, absl::StrCat(who, ended.how(), " after it had reported success")};
  }
  return {EndKind::kDeath, absl::StrCat(who, ended.how())};
}

}  // namespace metp
