#pragma once

// `/jobs/ID`: one job, over its steps and against its plan.

#include <string>

#include "absl/status/statusor.h"
#include "server/http/status_page.h"

namespace metp {

/// NotFound: there is no such job (any more).
absl::StatusOr<std::string> JobPage(const PageContext& context, const std::string& id);
/// What a browser gets then.
std::string NoJobPage(const PageContext& context, const std::string& id);

}  // namespace metp
