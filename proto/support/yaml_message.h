#pragma once

// A YAML text to a message, by the message's schema alone: job files and device profiles.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/support/job_problems.h"

namespace metp {

/// The text of `path`; one larger than 1 MiB comes back one byte too long, not whole. NotFound "PATH: cannot be
/// read: WHY, expected EXPECTED".
absl::StatusOr<std::string> ReadTextFile(const std::string& path, const std::string& expected);

/// Sets in `message` what `text` gives, `overrides` ("train.steps=10") in place of the text's values; `places`
/// receives the place of every key. `expected` ("a job file") is what a text too large is not. InvalidArgument with every problem, "NAME:LINE: KEY: MESSAGE" each.
absl::Status ReadYamlMessage(const std::string& text, const std::string& name, const std::string& expected,
                             const std::vector<std::string>& overrides, google::protobuf::Message& message,
                             Places& places);

}  // namespace metp
