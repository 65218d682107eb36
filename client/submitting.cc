#include "client/submitting.h"

#include <cstdio>

#include "absl/strings/str_split.h"
#include "client/exit_codes.h"
#include "client/json.h"
#include "client/summary.h"
#include "client/watching.h"

namespace metp {

int Submitted(Api& api, const v1::JobStatus& status, bool watch, bool json) {
  for (absl::string_view line : absl::StrSplit(PlanLines(status), '\n', absl::SkipEmpty()))
    std::fprintf(stderr, "plan: %.*s\n", static_cast<int>(line.size()), line.data());
  if (watch) {
    std::fprintf(stderr, "submitted %s\n", status.id().c_str());
    return Follow(api, status.id(), json);
  }
  std::printf("%s\n", json ? ToJson(status).c_str() : status.id().c_str());
  std::fprintf(stderr, "submitted; follow it with: metpctl watch %s\n", status.id().c_str());
  return kExitOk;
}

}  // namespace metp
