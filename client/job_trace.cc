#include "client/job_trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/format.h"
#include "worker/telemetry/chrome_trace.h"

namespace metp {
namespace {

constexpr int kMostNamed = 8;  // ranks in one sentence

}  // namespace

JobTrace::JobTrace(const v1::JobStatus& job, int steps)
    : job_(job), steps_(steps), ranks_(job.ranks_size()), whole_(ranks_, steps) {}

void JobTrace::Add(const v1::TraceChunk& chunk) {
  for (const v1::TracePart& part : chunk.parts()) {
    whole_.Add(part);
    parts_.push_back(part);
  }
}

std::string JobTrace::End() {
  int last = -1;
  for (const v1::TracePart& part : parts_) last = std::max(last, part.rank());
  if (last < 0 || last + 1 == job_.ranks_size()) return "";
  ranks_ = last + 1;
  whole_ = CommonSteps(ranks_, steps_);
  for (const v1::TracePart& part : parts_) whole_.Add(part);
  return absl::StrCat("job ", job_.id(), " was started again meanwhile: ", ranks_,
                      ranks_ == 1 ? " rank has" : " ranks have", " sent steps, expected ", job_.ranks_size());
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
  return absl::StrCat(steps, " of ", ranks_, ranks_ == 1 ? " rank, " : " ranks, ", Grouped(spans), " spans");
}

std::string JobTrace::Missing() const {
  std::string names;
  int silent = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (whole_.Count(rank) > 0 || ++silent > kMostNamed) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", "rank ", rank);
    if (ranks_ == job_.ranks_size()) absl::StrAppend(&names, " on ", job_.ranks(rank).worker());
  }
  if (silent == 0)
    return absl::StrCat("every rank has sent some, but not yet ", steps_, " that all have in a row");
  if (silent > kMostNamed) absl::StrAppend(&names, " and ", silent - kMostNamed, " more");
  return absl::StrCat("nothing came of ", names);
}

std::string JobTrace::ToChromeTrace() const {
  ChromeTrace trace;
  for (int rank = 0; rank < ranks_; ++rank) {
    std::string name = absl::StrCat("rank ", rank);
    // Of another attempt's ranks it is not known where they are.
    if (ranks_ == job_.ranks_size()) absl::StrAppend(&name, " (worker ", job_.ranks(rank).worker(), ")");
    trace.AddProcess(rank, name);
  }
  ForEachPart([&](const v1::TracePart& part) {
    for (const v1::TraceSpan& span : part.spans())
      trace.AddSpan(part.rank(), span.track(), span.name(), span.start(), span.seconds());
  });
  return trace.Text();
}

}  // namespace metp
