#pragma once

#include "client/api.h"

namespace metp {

/// What is said of a job that has just been submitted, then, with `watch`, Follow. Returns the exit code.
int Submitted(Api& api, const v1::JobStatus& status, bool watch, bool json);

}  // namespace metp
