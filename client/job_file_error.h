#pragma once

// What is wrong with a job, said with its place in the job file.

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace metp {

/// Prints one problem a line to stderr and returns the exit code. An error that begins with a key
/// ("parallel.degree: found 8, ...") is given that key's place in the file `path` read with `overrides`.
int FailInJobFile(const std::string& path, const std::vector<std::string>& overrides,
                  const absl::Status& error);

}  // namespace metp
