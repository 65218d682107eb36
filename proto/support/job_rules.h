#pragma once

// The checks behind ValidateJob, as a list of problems, so that a job that came from a file can have each of
// them told at its line. Pure.

#include "metp/v1/job.pb.h"
#include "proto/support/job_problems.h"

namespace metp {

/// Every broken rule of `job`, which should be normalized: single fields, and, when those hold, fields
/// against each other.
Problems CheckJob(const v1::JobSpec& job);

}  // namespace metp
