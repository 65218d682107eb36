#pragma once

// The coordinator's `/`: workers and jobs as plain text, for a person with a browser or curl.

#include <string>

#include "server/job_table.h"
#include "server/registry.h"

namespace metp {

std::string StatusPage(const JobTable& jobs, const Registry& workers);

}  // namespace metp
