#include "server/recovery.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace metp {
namespace {

/// "from the checkpoint of step 40", or where it begins without one.
std::string FromWhere(const v1::JobStatus& status) {
  if (!status.job().has_checkpoint()) return "from the first step, since the job has no checkpoint section";
  if (status.checkpoint_step() == 0) return "from the newest checkpoint, if there is one";
  return absl::StrCat("from the checkpoint of step ", status.checkpoint_step());
}

/// What is left to the user of a job that has failed.
std::string Remains(const v1::JobStatus& status) {
  if (status.checkpoint_step() == 0) return "";
  return absl::StrCat("; its last good checkpoint is of step ", status.checkpoint_step(), " in ",
                      status.job().checkpoint().directory());
}

std::string Shown(Clock::Duration wait) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  return ms % 1000 == 0 ? absl::StrCat(ms / 1000, " s") : absl::StrCat(ms, " ms");
}

}  // namespace

Verdict AfterAttempt(const v1::JobRecord& record, const RankEnd& cause, const CoordinatorConfig& config) {
  const v1::JobStatus& status = record.status();
  if (cause.kind == EndKind::kInterrupted)
    return {true, false, {}, absl::StrCat(cause.message, "; it goes on ", FromWhere(status))};

  const int allowed = status.job().max_restarts();
  if (cause.final || allowed == 0) return {false, false, {}, absl::StrCat(cause.message, Remains(status))};
  const bool progress = status.checkpoint_step() > record.began_after();
  const int before = progress ? 0 : status.fruitless_restarts();
  if (!progress && before >= allowed) {
    return {false,
            false,
            {},
            absl::StrCat(cause.message, "; given up after ", before, before == 1 ? " restart" : " restarts",
                         " without a newer checkpoint", Remains(status))};
  }
  Verdict verdict{true, !progress, config.restart_backoff, ""};
  for (int i = 0; i < before && verdict.wait < config.restart_backoff_limit; ++i) verdict.wait *= 2;
  verdict.wait = std::min<Clock::Duration>(verdict.wait, config.restart_backoff_limit);
  verdict.sentence =
      absl::StrCat(cause.message, "; tried again after ", Shown(verdict.wait), " ", FromWhere(status));
  if (!progress)
    absl::StrAppend(&verdict.sentence, " (restart ", before + 1, " of ", allowed,
                    " without a newer checkpoint)");
  return verdict;
}

}  // namespace metp
