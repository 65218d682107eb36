#include "client/job_trace.h"

#include "absl/strings/str_cat.h"
#include "client/format.h"
#include "worker/telemetry/chrome_trace.h"

namespace metp {
namespace {

constexpr int kMostNamed = 8;  // ranks in one sentence

}  // namespace

JobTrace::JobTrace(const v1::JobStatus& job, int steps)
    : job_(job), steps_(steps), whole_(job.ranks_size(), steps) {}

void JobTrace::Add(const v1::TraceChunk& chunk) {
  for (const v1::TracePart& part : chunk.parts()) {
    whole_.Add(part);
    parts_.push_back(part);
  }
}

template <typename Take>
void JobTrace::ForEachPart(const Take& take) const {
  const int first = whole_.First();
  for (const v1::TracePart& part : parts_) {
    if (part.step() >= first && part.step() < first + steps_) take(part);
  }
}

std::string JobTrace::Summary() const {
  const int first = whole_.First(), last = first + steps_ - 1;
  std::string steps = absl::StrCat(steps_ == 1 ? "step " : "steps ", first);
  if (steps_ > 1) absl::StrAppend(&steps, steps_ == 2 ? " and " : " to ", last);
  int64_t spans = 0;
  ForEachPart([&](const v1::TracePart& part) { spans += part.spans_size(); });
  return absl::StrCat(steps, " of ", job_.ranks_size(), job_.ranks_size() == 1 ? " rank, " : " ranks, ",
                      Grouped(spans), " spans");
}

std::string JobTrace::Missing() const {
  std::string names;
  int silent = 0;
  for (int rank = 0; rank < job_.ranks_size(); ++rank) {
    if (whole_.Count(rank) > 0 || ++silent > kMostNamed) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", "rank ", rank, " on ", job_.ranks(rank).worker());
  }
  if (silent == 0)
    return absl::StrCat("every rank has sent some, but not yet ", steps_, " that all have in a row");
  if (silent > kMostNamed) absl::StrAppend(&names, " and ", silent - kMostNamed, " more");
  return absl::StrCat("nothing came of ", names);
}

std::string JobTrace::ToChromeTrace() const {
  ChromeTrace trace;
  for (const v1::RankStatus& rank : job_.ranks())
    trace.AddProcess(rank.rank(), absl::StrCat("rank ", rank.rank(), " (worker ", rank.worker(), ")"));
  ForEachPart([&](const v1::TracePart& part) {
    for (const v1::TraceSpan& span : part.spans())
      trace.AddSpan(part.rank(), span.track(), span.name(), span.start(), span.seconds());
  });
  return trace.Text();
}

}  // namespace metp
