#pragma once

// The same as plain text, for curl: workers and jobs, and one job.

#include <string>

#include "absl/status/statusor.h"
#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

std::string StatusText(const JobTable& jobs, const Registry& workers);
/// NotFound: there is no such job (any more).
absl::StatusOr<std::string> JobText(const JobTable& jobs, const std::string& id);

}  // namespace metp
