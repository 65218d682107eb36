#pragma once

// From a YAML tree to a JobSpec, by the schema alone: every key is looked up in the message's descriptor and
// every value converted to its field's type. Pure.

#include "metp/v1/job.pb.h"
#include "proto/support/job_problems.h"
#include "proto/support/yaml_tree.h"

namespace metp {

/// Sets in `job` what `root` gives. Adds to `problems` what it cannot take: unknown keys and keys given
/// twice, values of another type or beyond their bounds, required keys that are missing. `places` receives
/// the place of every key.
void ReadJob(const YamlNode& root, v1::JobSpec& job, Places& places, Problems& problems);

}  // namespace metp
