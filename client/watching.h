#pragma once

// Following a job to its end: shared by `watch` and `submit --watch`.

#include <string>

#include "client/api.h"

namespace metp {

/// Shows progress and the closing summary; returns the exit code of the job's outcome. ^C leaves the job
/// running and says how to cancel it.
int Follow(Api& api, const std::string& job, bool json);

}  // namespace metp
