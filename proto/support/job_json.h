#pragma once

// A job as JSON, for people and for programs that read what metpctl prints.

#include <string>

#include "metp/v1/job.pb.h"

namespace metp {

/// protobuf's JSON mapping with the job file's key names: enum values are "FAMILY_LLAMA", 64-bit integers are
/// strings.
std::string JobToJson(const v1::JobSpec& job);

}  // namespace metp
